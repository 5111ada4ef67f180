// SPDX-License-Identifier: Apache-2.0

/*!
 * \file tests/python/contrib/dnnl_tests/runtime/count_allocations.c
 * \brief Preloaded into a process, counts the memory that one library allocates while asked to.
 *
 * An allocation is the library's if the call of malloc or operator new is in its code.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* What glibc's own malloc is called as well. */
extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* data, size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);

static char watched[256];
static volatile int is_watching = 0;
static long counted = 0;

void count_start(const char* library) {
  strncpy(watched, library, sizeof(watched) - 1);
  counted = 0;
  is_watching = 1;
}

long count_stop(void) {
  is_watching = 0;
  return counted;
}

static void count(const void* caller) {
  Dl_info info;
  if (!is_watching || dladdr(caller, &info) == 0 || info.dli_fname == NULL) return;
  if (strstr(info.dli_fname, watched) != NULL) __sync_fetch_and_add(&counted, 1);
}

#define CALLER __builtin_return_address(0)

void* malloc(size_t size) {
  count(CALLER);
  return __libc_malloc(size);
}

void* calloc(size_t number, size_t size) {
  count(CALLER);
  return __libc_calloc(number, size);
}

void* realloc(void* data, size_t size) {
  count(CALLER);
  return __libc_realloc(data, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  count(CALLER);
  return __libc_memalign(alignment, size);
}

/* operator new(size_t), operator new[](size_t) and operator new(size_t, align_val_t). */
void* _Znwm(size_t size) {
  count(CALLER);
  return __libc_malloc(size ? size : 1);
}

void* _Znam(size_t size) {
  count(CALLER);
  return __libc_malloc(size ? size : 1);
}

void* _ZnwmSt11align_val_t(size_t size, size_t alignment) {
  count(CALLER);
  return __libc_memalign(alignment, size ? size : 1);
}
