"""Program -> CUDA C text; NVRTC and C++ front ends; device headers."""
