#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(push_constant, scalar) uniform P { RF x; WF y; };
const int N = 1024;
void main() {
  int t = int(gl_GlobalInvocationID.x), i = t / N, j = t % N;
  float s = 0;
  [[unroll]] for (int u = -2; u < 3; u++)
    [[unroll]] for (int v = -2; v < 3; v++)
      if (0 <= i + u && i + u < N && 0 <= j + v && j + v < N) s += x.v[(i + u) * N + j + v];
  y.v[t] = s;
}
