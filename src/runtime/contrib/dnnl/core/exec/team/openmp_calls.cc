/*
 * Licensed to the Apache Software Foundation (ASF) under one
 * or more contributor license agreements.  See the NOTICE file
 * distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file
 * to you under the Apache License, Version 2.0 (the
 * "License"); you may not use this file except in compliance
 * with the License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing,
 * software distributed under the License is distributed on an
 * "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
 * KIND, either express or implied.  See the License for the
 * specific language governing permissions and limitations
 * under the License.
 */

/*!
 * \file src/runtime/contrib/dnnl/core/exec/team/openmp_calls.cc
 * \brief Runs the parallel regions of a library compiled for GNU OpenMP on teams of ours.
 */
#include "openmp_calls.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// USE_DNNL_TEAM of CMake.
#ifndef DNNL_HAS_TEAM
#define DNNL_HAS_TEAM 1
#endif

#if DNNL_HAS_TEAM && defined(__linux__) && defined(__x86_64__)

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../environment.h"
#include "../../library.h"
#include "own_team.h"
#include "team.h"

namespace tvm::runtime::contrib::dnnl_backend {

namespace {

/*! \brief The functions of GNU OpenMP, which serve all but the regions of our teams. */
struct GnuOpenMP {
  int (*get_max_threads)();
  int (*get_num_threads)();
  int (*get_thread_num)();
  int (*in_parallel)();
  void (*barrier)();
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
  void (*parallel_start)(void (*)(void*), void*, unsigned);
  void (*parallel_end)();
  bool (*loop_static_start)(long, long, long, long, long*, long*);  // NOLINT(runtime/int)
  bool (*loop_static_next)(long*, long*);                           // NOLINT(runtime/int)
  void (*loop_end_nowait)();
};
GnuOpenMP gnu;

/*! \brief What the thread does in the region that it computes an index of. */
struct Inside {
  /*! \brief Regions within the region: GNU OpenMP runs each on this thread alone. */
  int num_inner{0};
  /*! \brief The loop whose iterations the indices share. */
  long start{0}, end{0}, step{1}, chunk{0}, trip{0};  // NOLINT(runtime/int)
};
thread_local Inside inside;

/*! \brief The team whose region the thread computes, not one within it; else null. */
Team* CurrentTeam() {
  Team* team = TeamPlace::OfThread().team;
  return team != nullptr && inside.num_inner == 0 ? team : nullptr;
}

/*! \brief The team to begin a region on; null if it is for GNU OpenMP. */
Team* TeamFor(unsigned* num_threads) {
  if (TeamPlace::OfThread().team != nullptr || gnu.in_parallel()) return nullptr;
  if (*num_threads == 0) *num_threads = gnu.get_max_threads();
  if (*num_threads == 1) return nullptr;
  return TeamOfThread(static_cast<int>(*num_threads));
}

int GetMaxThreads() {
  const Team* team = TeamPlace::OfThread().team;
  return team == nullptr ? gnu.get_max_threads() : team->max_threads();
}

int GetNumThreads() {
  const Team* team = CurrentTeam();
  return team == nullptr ? gnu.get_num_threads() : team->size();
}

int GetThreadNum() {
  return CurrentTeam() == nullptr ? gnu.get_thread_num() : TeamPlace::OfThread().index;
}

int InParallel() { return TeamPlace::OfThread().team != nullptr || gnu.in_parallel(); }

void Barrier() {
  Team* team = CurrentTeam();
  team == nullptr ? gnu.barrier() : team->Barrier();
}

/*! \brief How compilers up to GCC 4.8 begin a region, and then call the function themselves. */
void ParallelStart(void (*function)(void*), void* data, unsigned num_threads) {
  if (Team* team = TeamFor(&num_threads)) {
    team->Start(function, data, num_threads, gnu.get_max_threads());
    return;
  }
  const bool is_inner = TeamPlace::OfThread().team != nullptr;
  gnu.parallel_start(function, data, is_inner ? 1 : num_threads);
  if (is_inner) ++inside.num_inner;
}

void ParallelEnd() {
  if (Team* team = CurrentTeam()) {
    team->Finish();
    return;
  }
  if (TeamPlace::OfThread().team != nullptr) --inside.num_inner;
  gnu.parallel_end();
}

void Parallel(void (*function)(void*), void* data, unsigned num_threads, unsigned flags) {
  if (Team* team = TeamFor(&num_threads)) {
    team->Start(function, data, num_threads, gnu.get_max_threads());
    function(data);
    team->Finish();
    return;
  }
  const int is_inner = TeamPlace::OfThread().team != nullptr ? 1 : 0;
  inside.num_inner += is_inner;
  gnu.parallel(function, data, is_inner ? 1 : num_threads, flags);
  inside.num_inner -= is_inner;
}

// NOLINTBEGIN(runtime/int)
bool LoopStaticNext(long* first, long* last) {
  const Team* team = CurrentTeam();
  if (team == nullptr) return gnu.loop_static_next(first, last);
  const long num_threads = team->size(), index = TeamPlace::OfThread().index;
  const long round_up = inside.step > 0 ? inside.step - 1 : inside.step + 1;
  const long count = (inside.end - inside.start + round_up) / inside.step;
  long from, to;
  if (inside.chunk == 0) {
    // One part for each, the first ones larger by one iteration.
    if (inside.trip > 0) return false;
    const long least = count / num_threads, more = count % num_threads;
    from = least * index + std::min(index, more);
    to = from + least + (index < more ? 1 : 0);
  } else {
    from = (inside.trip * num_threads + index) * inside.chunk;
    to = std::min(from + inside.chunk, count);
  }
  ++inside.trip;
  if (from >= to) return false;
  *first = inside.start + from * inside.step;
  *last = inside.start + to * inside.step;
  return true;
}

bool LoopStaticStart(long start, long end, long step, long chunk, long* first, long* last) {
  if (CurrentTeam() == nullptr) return gnu.loop_static_start(start, end, step, chunk, first, last);
  inside.start = start;
  inside.end = end;
  inside.step = step;
  inside.chunk = chunk;
  inside.trip = 0;
  return LoopStaticNext(first, last);
}
// NOLINTEND(runtime/int)

void LoopEndNowait() {
  if (CurrentTeam() == nullptr) gnu.loop_end_nowait();
}

/*! \brief A function of GNU OpenMP and the one that takes its place. */
struct Replacement {
  const char* name;
  void* ours;
  void** theirs;
};

template <typename Function>
Replacement Replace(const char* name, Function* ours, Function** theirs) {
  return {name, reinterpret_cast<void*>(ours), reinterpret_cast<void**>(theirs)};
}

const std::vector<Replacement>& Replacements() {
  static const std::vector<Replacement> replacements = {
      Replace("omp_get_max_threads", GetMaxThreads, &gnu.get_max_threads),
      Replace("omp_get_num_threads", GetNumThreads, &gnu.get_num_threads),
      Replace("omp_get_thread_num", GetThreadNum, &gnu.get_thread_num),
      Replace("omp_in_parallel", InParallel, &gnu.in_parallel),
      Replace("GOMP_barrier", Barrier, &gnu.barrier),
      Replace("GOMP_parallel", Parallel, &gnu.parallel),
      Replace("GOMP_parallel_start", ParallelStart, &gnu.parallel_start),
      Replace("GOMP_parallel_end", ParallelEnd, &gnu.parallel_end),
      Replace("GOMP_loop_static_start", LoopStaticStart, &gnu.loop_static_start),
      Replace("GOMP_loop_static_next", LoopStaticNext, &gnu.loop_static_next),
      Replace("GOMP_loop_end_nowait", LoopEndNowait, &gnu.loop_end_nowait),
  };
  return replacements;
}

bool BeginsWith(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

/*! \brief Where a library keeps the address of a function of OpenMP, and what belongs there. */
using Slots = std::vector<std::pair<void**, void*>>;

/*! \brief What the dynamic section of a library says, with the addresses that it is loaded at. */
const ElfW(Dyn) * Find(const ElfW(Dyn) * dynamic, ElfW(Sxword) tag) {
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == tag) return dynamic;
  }
  return nullptr;
}

/*! \brief Add the slots of a table of relocations; false for a function that we do not have. */
bool AddSlots(const link_map& map, ElfW(Sxword) table, ElfW(Sxword) size, Slots* slots) {
  const ElfW(Dyn)* rela = Find(map.l_ld, table);
  const ElfW(Dyn)* bytes = Find(map.l_ld, size);
  if (rela == nullptr || bytes == nullptr) return true;
  const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(Find(map.l_ld, DT_SYMTAB)->d_un.d_ptr);
  const auto* names = reinterpret_cast<const char*>(Find(map.l_ld, DT_STRTAB)->d_un.d_ptr);
  const auto* begin = reinterpret_cast<const ElfW(Rela)*>(rela->d_un.d_ptr);
  const auto* end = begin + bytes->d_un.d_val / sizeof(*begin);
  for (const auto* each = begin; each != end; ++each) {
    // Most are of no symbol.
    if (ELF64_R_SYM(each->r_info) == 0) continue;
    const char* name = names + symbols[ELF64_R_SYM(each->r_info)].st_name;
    // What others tell OpenMP of the number of threads goes on to it.
    if (std::strcmp(name, "omp_set_num_threads") == 0) continue;
    if (!BeginsWith(name, "GOMP_") && !BeginsWith(name, "omp_")) continue;
    const auto type = ELF64_R_TYPE(each->r_info);
    void* const ours = FunctionOfTeams(name);
    if (ours == nullptr || (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT)) {
      return false;
    }
    slots->push_back({reinterpret_cast<void**>(map.l_addr + each->r_offset), ours});
  }
  return true;
}

/*! \brief The bytes of a library that the loader has made read-only after it filled them. */
std::pair<ElfW(Addr), ElfW(Addr)> Relro(const link_map& map) {
  struct Search {
    const ElfW(Dyn) * dynamic;
    std::pair<ElfW(Addr), ElfW(Addr)> relro;
  } search{map.l_ld, {0, 0}};
  const auto look = [](dl_phdr_info* info, size_t, void* data) {
    auto* search = static_cast<Search*>(data);
    bool is_it = false;
    std::pair<ElfW(Addr), ElfW(Addr)> relro{0, 0};
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr) & header = info->dlpi_phdr[i];
      const ElfW(Addr) begin = info->dlpi_addr + header.p_vaddr;
      if (header.p_type == PT_DYNAMIC) {
        is_it = begin == reinterpret_cast<ElfW(Addr)>(search->dynamic);
      } else if (header.p_type == PT_GNU_RELRO) {
        // The loader protects whole pages only.
        const ElfW(Addr) page_size = sysconf(_SC_PAGESIZE);
        relro = {begin & ~(page_size - 1), (begin + header.p_memsz) & ~(page_size - 1)};
      }
    }
    if (is_it) search->relro = relro;
    return is_it ? 1 : 0;
  };
  dl_iterate_phdr(look, &search);
  return search.relro;
}

/*! \brief Whether the user leaves it to us how threads wait, and where they run. */
bool IsWanted() {
  if (!IsOnInEnvironment("TVM_DNNL_TEAM")) return false;
  for (const char* variable :
       {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(variable) != nullptr) return false;
  }
  return true;
}

/*! \brief Find GNU OpenMP's functions by way of a library that was linked with it. */
bool FindGnuOpenMP(void* library) {
  // All compilers' functions are in any GNU OpenMP.
  for (const Replacement& each : Replacements()) {
    if (*each.theirs == nullptr) *each.theirs = dlsym(library, each.name);
    if (*each.theirs == nullptr) return false;
  }
  return true;
}

}  // namespace

bool HasTeam(int size) { return TeamOfThread(size) != nullptr; }

void* FunctionOfTeams(const char* name) {
  for (const Replacement& each : Replacements()) {
    if (std::strcmp(each.name, name) == 0) return each.ours;
  }
  return nullptr;
}

bool RunOnTeams(const void* address) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string path = LibraryAt(address);
  if (path.empty() || !IsWanted()) return false;
  // Never closed: the library must not be loaded anew, with GNU OpenMP's functions.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  link_map* map = nullptr;
  Slots slots;
  const bool is_possible = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 &&
                           AddSlots(*map, DT_JMPREL, DT_PLTRELSZ, &slots) &&
                           AddSlots(*map, DT_RELA, DT_RELASZ, &slots) && !slots.empty() &&
                           FindGnuOpenMP(library);
  if (!is_possible) return false;
  const auto [begin, end] = Relro(*map);
  void* const read_only = reinterpret_cast<void*>(begin);
  if (begin < end && mprotect(read_only, end - begin, PROT_READ | PROT_WRITE) != 0) return false;
  for (const auto& [slot, ours] : slots) __atomic_store_n(slot, ours, __ATOMIC_RELEASE);
  if (begin < end) mprotect(read_only, end - begin, PROT_READ);
  return true;
}

}  // namespace tvm::runtime::contrib::dnnl_backend

#else  // another system, or without teams

namespace tvm::runtime::contrib::dnnl_backend {

bool RunOnTeams(const void*) { return false; }
bool HasTeam(int) { return false; }
void* FunctionOfTeams(const char*) { return nullptr; }

}  // namespace tvm::runtime::contrib::dnnl_backend

#endif
