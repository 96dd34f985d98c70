#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(push_constant, scalar) uniform P { RF x; WF r; };
const uint N = 2048;
void main() {
  uint i = gl_GlobalInvocationID.x;
  float s = 0;
  for (uint j = 0; j < N; j++) s += x.v[i * N + j];
  r.v[i] = s;
}
