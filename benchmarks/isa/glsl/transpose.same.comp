#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(push_constant, scalar) uniform P { RF x; WF y; uint n; uint m; };
void main() {  // extents known at launch only, as in the kernel
  uint t = gl_GlobalInvocationID.x;
  if (t >= n * m) return;
  uint i = t / m, j = t % m;
  y.v[j * n + i] = x.v[t];
}
