// The context switch. Only what the C calling convention says a callee keeps is saved, and the switch ends in `ret`,
// which the branch predictor follows better than an indirect jump.
#include "host_runtime.hpp"

#if defined(__x86_64__)
asm(R"(
.text
.globl taskc_fiber_switch
.hidden taskc_fiber_switch
.type taskc_fiber_switch, @function
taskc_fiber_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rdi
.globl taskc_fiber_resume
.hidden taskc_fiber_resume
.type taskc_fiber_resume, @function
taskc_fiber_resume:
  mov %rdi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

void* taskc::fiber_stack(char* top, void (*entry)()) {
  void** sp = (void**)((uintptr_t)top & ~(uintptr_t)63);
  *--sp = nullptr;  // a return address for `entry`, which never returns; also aligns the stack as after a call
  *--sp = (void*)entry;
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl taskc_fiber_switch
.hidden taskc_fiber_switch
.type taskc_fiber_switch, %function
taskc_fiber_switch:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov x0, x1
.globl taskc_fiber_resume
.hidden taskc_fiber_resume
.type taskc_fiber_resume, %function
taskc_fiber_resume:
  mov sp, x0
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
)");

void* taskc::fiber_stack(char* top, void (*entry)()) {
  void** sp = (void**)((uintptr_t)top & ~(uintptr_t)63) - 20;
  for (int i = 0; i < 20; ++i) sp[i] = nullptr;
  sp[1] = (void*)entry;  // x30
  return sp;
}
#else
#error "the host machine has a context switch for x86-64 and aarch64 only"
#endif
