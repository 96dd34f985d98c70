#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(push_constant, scalar) uniform P { RV4 x; WF r; };
const uint N = 2048;
void main() {  // a row for each workgroup, in vectors
  uint i = gl_WorkGroupID.x;
  vec4 v = vec4(0);
  for (uint j = gl_LocalInvocationID.x; j < N / 4; j += BLOCK) v += x.v[i * (N / 4) + j];
  float s = subgroupAdd(v.x + v.y + v.z + v.w);
  if (subgroupElect()) r.v[i * (BLOCK / 32) + gl_SubgroupID] = s;
}
