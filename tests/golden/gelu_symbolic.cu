#include "taskc_device.cuh"
extern "C" __global__ void __launch_bounds__(128) kernel(const f16* x, const f16* __restrict__ c0, f16* __restrict__ v2, const int N) {
  const int tid = thread_x();
  const int bx = block_x();
  const int start = (1024 * bx);
  grid_dependency_wait();
  grid_dependency_launch();
  {
    alignas(16) f16 x_v[8];
    ld<f16, 8>(x_v, x + (start + 8 * tid), (96 * N > start + 8 * tid));
    alignas(16) f16 c0_v[8];
    ld_nc<f16, 8>(c0_v, c0 + ((start + 8 * tid) % 96), (96 * N > start + 8 * tid));
    alignas(16) f16 out_r[8];
    out_r[0] = cast<f16>(((to_f32(x_v[0]) + to_f32(c0_v[0])) * t_sigmoid((to_f32(x_v[0]) + to_f32(c0_v[0])))));
    out_r[1] = cast<f16>(((to_f32(x_v[1]) + to_f32(c0_v[1])) * t_sigmoid((to_f32(x_v[1]) + to_f32(c0_v[1])))));
    out_r[2] = cast<f16>(((to_f32(x_v[2]) + to_f32(c0_v[2])) * t_sigmoid((to_f32(x_v[2]) + to_f32(c0_v[2])))));
    out_r[3] = cast<f16>(((to_f32(x_v[3]) + to_f32(c0_v[3])) * t_sigmoid((to_f32(x_v[3]) + to_f32(c0_v[3])))));
    out_r[4] = cast<f16>(((to_f32(x_v[4]) + to_f32(c0_v[4])) * t_sigmoid((to_f32(x_v[4]) + to_f32(c0_v[4])))));
    out_r[5] = cast<f16>(((to_f32(x_v[5]) + to_f32(c0_v[5])) * t_sigmoid((to_f32(x_v[5]) + to_f32(c0_v[5])))));
    out_r[6] = cast<f16>(((to_f32(x_v[6]) + to_f32(c0_v[6])) * t_sigmoid((to_f32(x_v[6]) + to_f32(c0_v[6])))));
    out_r[7] = cast<f16>(((to_f32(x_v[7]) + to_f32(c0_v[7])) * t_sigmoid((to_f32(x_v[7]) + to_f32(c0_v[7])))));
    st<f16, 8>(v2 + (start + 8 * tid), out_r, (96 * N > start + 8 * tid));
  }
}
HOST_ENTRY(kernel)
