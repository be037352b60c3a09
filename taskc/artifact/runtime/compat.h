/* Libraries built here also load on systems with glibc 2.28: functions that moved between libraries in glibc 2.34 are
 * asked for by the version they had from the start. Include before use, in every file that calls them. */
#ifndef TASKC_COMPAT_H
#define TASKC_COMPAT_H
#include <dlfcn.h>
#if defined(__GLIBC__) && defined(__x86_64__)
#define TASKC_OLDEST "GLIBC_2.2.5"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define TASKC_OLDEST "GLIBC_2.17"
#endif
#ifdef TASKC_OLDEST
__asm__(".symver dlopen,dlopen@" TASKC_OLDEST);
__asm__(".symver dlsym,dlsym@" TASKC_OLDEST);
__asm__(".symver dlclose,dlclose@" TASKC_OLDEST);
__asm__(".symver dlerror,dlerror@" TASKC_OLDEST);
__asm__(".symver dladdr,dladdr@" TASKC_OLDEST);
#endif
#endif
