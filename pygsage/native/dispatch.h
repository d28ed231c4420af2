// Which kernels this processor runs, and on how many threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels.h"

namespace pygsage {

// The kernels by name, or the best that this processor runs; throws std::invalid_argument for those that it does not.
inline const Kernels& kernels(const std::string& isa = "") {
  const Kernels* avx2 = nullptr;
  const Kernels* avx512 = nullptr;
#if defined(PYGSAGE_X86_KERNELS)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    avx2 = avx2_kernels();
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    avx512 = avx512_kernels();
#endif
  for (const Kernels* found : {avx512, avx2, plain_kernels()})
    if (found && (isa.empty() || isa == found->isa)) return *found;
  throw std::invalid_argument("this processor, or this build, has no kernels for " + isa);
}

// Calls work(begin, end) for parts of 0 .. count, on this thread and num_threads - 1 others; parts begin at multiples of
// `grain`. Threads are started anew each time: a pool would not survive a fork, and a start costs some 20 us.
template <typename Work>
void in_parallel(std::int64_t count, int num_threads, std::int64_t grain, const Work& work) {
  const std::int64_t units = (count + grain - 1) / grain;
  const std::int64_t parts = std::min<std::int64_t>(std::max(num_threads, 1), std::max<std::int64_t>(units, 1));
  const auto bound = [&](std::int64_t part) { return std::min(count, units * part / parts * grain); };
  if (parts == 1) {
    work(std::int64_t{0}, count);
    return;
  }
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(parts));
  const auto run = [&](std::int64_t part) {
    try {
      work(bound(part), bound(part + 1));
    } catch (...) {
      errors[static_cast<std::size_t>(part)] = std::current_exception();
    }
  };
  for (std::int64_t part = 1; part < parts; ++part) threads.emplace_back(run, part);
  run(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace pygsage
