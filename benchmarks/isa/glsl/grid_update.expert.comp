#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// The cell in registers; a workgroup's row is known to all of it.
layout(push_constant, scalar) uniform P { WV2 v; RF m; };
const int N = 1024;
void main() {
  int first = int(gl_WorkGroupID.x) * BLOCK, i = first / N;
  int j = first % N + int(gl_LocalInvocationID.x), t = first + int(gl_LocalInvocationID.x);
  float mass = m.v[t];
  vec2 u = v.v[t];
  if (mass > 0) u /= mass;
  u.y -= 0.01;
  if (i < 3) u.x = max(u.x, 0);
  if (i > N - 3) u.x = min(u.x, 0);
  u.y = j < 3 ? max(u.y, 0) : u.y;
  u.y = j > N - 3 ? min(u.y, 0) : u.y;
  v.v[t] = u;
}
