#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(push_constant, scalar) uniform P { WV2 v; RF m; };
const int N = 1024;
void main() {
  int t = int(gl_GlobalInvocationID.x), i = t / N, j = t % N;
  if (m.v[t] > 0) v.v[t] /= m.v[t];
  v.v[t].y -= 0.01;
  if (i < 3 && v.v[t].x < 0) v.v[t].x = 0;
  if (i > N - 3 && v.v[t].x > 0) v.v[t].x = 0;
  if (j < 3 && v.v[t].y < 0) v.v[t].y = 0;
  if (j > N - 3 && v.v[t].y > 0) v.v[t].y = 0;
}
