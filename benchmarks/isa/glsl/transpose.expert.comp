#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(push_constant, scalar) uniform P { RF x; WF y; uint n; uint m; };
shared float tile[32][33];
void main() {  // tiles of 32 x 32 through workgroup memory, eight elements per invocation
  uint column = gl_LocalInvocationID.x % 32, row = gl_LocalInvocationID.x / 32;
  uint i = gl_WorkGroupID.y * 32, j = gl_WorkGroupID.x * 32;
  [[unroll]] for (uint k = 0; k < 32; k += BLOCK / 32)
    if (i + row + k < n && j + column < m) tile[row + k][column] = x.v[(i + row + k) * m + j + column];
  barrier();
  [[unroll]] for (uint k = 0; k < 32; k += BLOCK / 32)
    if (j + row + k < m && i + column < n) y.v[(j + row + k) * n + i + column] = tile[column][row + k];
}
