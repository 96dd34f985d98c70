"""Opcodes and enumerants of SPIR-V under their specification names; only those that vkchi uses.

Source: SPIR-V specification, version 1.5, section 3; GLSL.std.450, version 1.00, section 2.

    >>> spec.OpFAdd, spec.Capability.Shader, spec.Glsl.Sqrt
    (129, 1, 31)
"""

from __future__ import annotations

MAGIC = 0x07230203
VERSION = 0x00010500

# fmt: off
OpName, OpMemberName, OpExtension, OpExtInstImport, OpExtInst = 5, 6, 10, 11, 12
OpMemoryModel, OpEntryPoint, OpExecutionMode, OpCapability = 14, 15, 16, 17
OpTypeVoid, OpTypeBool, OpTypeInt, OpTypeFloat, OpTypeVector = 19, 20, 21, 22, 23
OpTypeArray, OpTypeRuntimeArray, OpTypeStruct, OpTypePointer, OpTypeFunction = 28, 29, 30, 32, 33
OpConstantTrue, OpConstantFalse, OpConstant, OpConstantComposite = 41, 42, 43, 44
OpFunction, OpFunctionEnd, OpVariable, OpLoad, OpStore = 54, 56, 59, 61, 62
OpAccessChain, OpInBoundsAccessChain, OpDecorate, OpMemberDecorate = 65, 66, 71, 72
OpCompositeConstruct, OpCompositeExtract = 80, 81
OpConvertFToU, OpConvertFToS, OpConvertSToF, OpConvertUToF = 109, 110, 111, 112
OpUConvert, OpSConvert, OpFConvert, OpBitcast = 113, 114, 115, 124
OpSNegate, OpFNegate, OpIAdd, OpFAdd = 126, 127, 128, 129
OpISub, OpFSub, OpIMul, OpFMul = 130, 131, 132, 133
OpUDiv, OpSDiv, OpFDiv, OpUMod, OpFRem = 134, 135, 136, 137, 140
OpIsNan, OpIsInf = 156, 157
OpLogicalEqual, OpLogicalNotEqual, OpLogicalOr, OpLogicalAnd, OpLogicalNot = 164, 165, 166, 167, 168
OpSelect, OpIEqual, OpINotEqual = 169, 170, 171
OpUGreaterThan, OpSGreaterThan, OpUGreaterThanEqual, OpSGreaterThanEqual = 172, 173, 174, 175
OpULessThan, OpSLessThan, OpULessThanEqual, OpSLessThanEqual = 176, 177, 178, 179
OpFOrdEqual, OpFUnordNotEqual, OpFOrdLessThan, OpFOrdGreaterThan = 180, 183, 184, 186
OpFOrdLessThanEqual, OpFOrdGreaterThanEqual = 188, 190
OpShiftRightLogical, OpShiftRightArithmetic, OpShiftLeftLogical = 194, 195, 196
OpBitwiseOr, OpBitwiseXor, OpBitwiseAnd, OpNot, OpBitCount = 197, 198, 199, 200, 205
OpControlBarrier, OpMemoryBarrier = 224, 225
OpAtomicExchange, OpAtomicCompareExchange, OpAtomicIAdd = 229, 230, 234
OpAtomicSMin, OpAtomicUMin, OpAtomicSMax, OpAtomicUMax = 236, 237, 238, 239
OpAtomicAnd, OpAtomicOr, OpAtomicXor = 240, 241, 242
OpPhi, OpLoopMerge, OpSelectionMerge, OpLabel = 245, 246, 247, 248
OpBranch, OpBranchConditional, OpReturn = 249, 250, 253
OpGroupNonUniformElect, OpGroupNonUniformAll, OpGroupNonUniformAny = 333, 334, 335
OpGroupNonUniformAllEqual, OpGroupNonUniformBroadcast = 336, 337
OpGroupNonUniformBroadcastFirst, OpGroupNonUniformBallot = 338, 339
OpGroupNonUniformShuffle, OpGroupNonUniformShuffleXor = 345, 346
OpGroupNonUniformShuffleUp, OpGroupNonUniformShuffleDown = 347, 348
OpGroupNonUniformIAdd, OpGroupNonUniformFAdd = 349, 350
OpGroupNonUniformIMul, OpGroupNonUniformFMul = 351, 352
OpGroupNonUniformSMin, OpGroupNonUniformUMin, OpGroupNonUniformFMin = 353, 354, 355
OpGroupNonUniformSMax, OpGroupNonUniformUMax, OpGroupNonUniformFMax = 356, 357, 358
OpGroupNonUniformBitwiseAnd, OpGroupNonUniformBitwiseOr = 359, 360
OpGroupNonUniformBitwiseXor = 361
OpGroupNonUniformLogicalAnd, OpGroupNonUniformLogicalOr = 362, 363
OpGroupNonUniformLogicalXor = 364
OpAtomicFMinEXT, OpAtomicFMaxEXT, OpAtomicFAddEXT = 5614, 5615, 6035
# fmt: on


class Capability:
    """Section 3.31."""

    Shader, Float16, Float64, Int64, Int64Atomics, Int16, Int8 = 1, 9, 10, 11, 12, 22, 39
    GroupNonUniform, GroupNonUniformVote, GroupNonUniformArithmetic = 61, 62, 63
    GroupNonUniformBallot, GroupNonUniformShuffle, GroupNonUniformShuffleRelative = 64, 65, 66
    StorageBuffer16BitAccess, StorageBuffer8BitAccess = 4433, 4448
    SignedZeroInfNanPreserve, PhysicalStorageBufferAddresses = 4466, 5347
    AtomicFloat32MinMaxEXT, AtomicFloat32AddEXT, AtomicFloat64AddEXT = 5612, 6033, 6034


class StorageClass:
    """Section 3.7."""

    Input, Workgroup, Private, Function = 1, 4, 6, 7
    PushConstant, PhysicalStorageBuffer = 9, 5349


class Decoration:
    """Section 3.20."""

    Block, ArrayStride, BuiltIn, Coherent, NonWritable, Offset = 2, 6, 11, 23, 24, 35
    NoContraction = 42


class BuiltIn:
    """Section 3.21."""

    NumWorkgroups, WorkgroupId, GlobalInvocationId, LocalInvocationIndex = 24, 26, 28, 29
    SubgroupSize, SubgroupLocalInvocationId = 36, 41


class ExecutionModel:
    """Section 3.3."""

    GLCompute = 5


class AddressingModel:
    """Section 3.4."""

    PhysicalStorageBuffer64 = 5348


class MemoryModel:
    """Section 3.5."""

    GLSL450 = 1


class ExecutionMode:
    """Section 3.6."""

    LocalSize, SignedZeroInfNanPreserve = 17, 4461


class Scope:
    """Section 3.27. Instructions take the id of a constant with one of these values."""

    Device, Workgroup, Subgroup = 1, 2, 3


class Semantics:
    """Memory semantics, section 3.25: bits. Instructions take the id of a constant."""

    Relaxed, AcquireRelease, UniformMemory, WorkgroupMemory = 0, 8, 0x40, 0x100


class GroupOperation:
    """Section 3.28."""

    Reduce, InclusiveScan, ExclusiveScan = 0, 1, 2


class MemoryAccess:
    """Section 3.26, bits."""

    Aligned = 2


class Glsl:
    """Component-wise instructions of GLSL.std.450."""

    Round, RoundEven, Trunc, FAbs, SAbs, FSign, SSign = 1, 2, 3, 4, 5, 6, 7
    Floor, Ceil, Fract = 8, 9, 10
    Radians, Degrees, Sin, Cos, Tan, Asin, Acos, Atan = 11, 12, 13, 14, 15, 16, 17, 18
    Sinh, Cosh, Tanh, Asinh, Acosh, Atanh, Atan2 = 19, 20, 21, 22, 23, 24, 25
    Pow, Exp, Log, Exp2, Log2, Sqrt, InverseSqrt = 26, 27, 28, 29, 30, 31, 32
    FMin, UMin, SMin, FMax, UMax, SMax, FClamp, UClamp, SClamp = 37, 38, 39, 40, 41, 42, 43, 44, 45
    FMix, Step, SmoothStep, Fma, Ldexp = 46, 48, 49, 50, 53
    FindILsb, FindSMsb, FindUMsb, NMin, NMax, NClamp = 73, 74, 75, 79, 80, 81
