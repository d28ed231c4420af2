// Which kernels this processor runs.
#pragma once

#include <stdexcept>
#include <string>

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

}  // namespace pygsage
