#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(push_constant, scalar) uniform P { RV3 x; RV3 c; WI label; uint count; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= count) return;
  vec3 own = x.v[i];
  float nearest = 1e9;
  int at = 0;
  for (int k = 0; k < 64; k++) {
    vec3 d = own - c.v[k];
    float far = dot(d, d);
    if (far < nearest) { nearest = far; at = k; }
  }
  label.v[i] = at;
}
