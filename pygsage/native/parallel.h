// Work for several threads that sleep between two passes: they never wait by spinning, as OpenMP's do.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#define PYGSAGE_CAN_FORK 1
#include <pthread.h>
#endif

namespace pygsage {

// Parts of a pass, which whoever is awake takes one after the other.
struct Parts {
  void (*work)(void* context, std::int64_t part);
  void* context;
  std::int64_t count;
  std::atomic<std::int64_t> next{0};
  int places;      // helpers that may still join; the pool's lock guards this and what follows
  int inside = 0;  // helpers at work
  std::exception_ptr error;

  Parts(void (*function)(void*, std::int64_t), void* of, std::int64_t num_parts, int helpers)
      : work(function), context(of), count(num_parts), places(helpers) {}

  void take_all() {
    for (std::int64_t part; (part = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(context, part);
  }
};

// Helpers are started when they are first wanted and sleep until the process ends. Never destroyed.
class Pool {
 public:
  // The process's own: a child of a fork has none of its parent's threads, and gets a pool of its own.
  static Pool& own() {
    Pool* pool = slot().load(std::memory_order_acquire);
    if (pool) return *pool;
#if defined(PYGSAGE_CAN_FORK)
    static const int registered = pthread_atfork(nullptr, nullptr, [] { slot().store(nullptr); });
    (void)registered;
#endif
    Pool* fresh = new Pool();
    if (slot().compare_exchange_strong(pool, fresh)) return *fresh;
    delete fresh;
    return *pool;
  }

  // Does all parts on this thread and on helpers that wake up in time; while another thread uses the pool, on this alone.
  void run(Parts& parts) {
    if (busy_.test_and_set(std::memory_order_acquire)) {
      parts.take_all();
      return;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      start(parts.places);
      parts_ = &parts;
    }
    wake_two();
    std::exception_ptr error;
    try {
      parts.take_all();
    } catch (...) {
      error = std::current_exception();
      parts.next.store(parts.count);
    }
    {
      std::unique_lock<std::mutex> lock(mutex_);
      parts_ = nullptr;
      done_.wait(lock, [&] { return parts.inside == 0; });
    }
    busy_.clear(std::memory_order_release);
    if (!error) error = parts.error;
    if (error) std::rethrow_exception(error);
  }

 private:
  static std::atomic<Pool*>& slot() {
    static std::atomic<Pool*> pool{nullptr};
    return pool;
  }

  void start(int helpers) {
    for (; num_helpers_ < helpers; ++num_helpers_) try {
        std::thread(&Pool::help, this).detach();
      } catch (const std::system_error&) {
        return;  // the system allows no more: there are the others
      }
  }

  void wake_two() {  // and each of them two more: the last is awake soon
    wake_.notify_one();
    wake_.notify_one();
  }

  void help() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return parts_ && parts_->places > 0; });
      Parts& parts = *parts_;
      --parts.places;
      ++parts.inside;
      const bool more = parts.places > 0;
      lock.unlock();
      if (more) wake_two();
      std::exception_ptr error;
      try {
        parts.take_all();
      } catch (...) {
        error = std::current_exception();
        parts.next.store(parts.count);
      }
      lock.lock();
      if (error) parts.error = error;
      if (--parts.inside == 0) done_.notify_one();
    }
  }

  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Parts* parts_ = nullptr;
  int num_helpers_ = 0;
};

// Calls work(begin, end) for parts of 0 .. count on this thread and at most num_threads - 1 others. Parts begin at
// multiples of `grain`, which is to be worth some ten microseconds; there are more parts than threads, so that a thread
// that is late or slow delays nobody.
template <typename Work>
void in_parallel(std::int64_t count, int num_threads, std::int64_t grain, const Work& work) {
  const std::int64_t units = (count + grain - 1) / grain;
  const auto threads = static_cast<int>(std::min<std::int64_t>(std::max(num_threads, 1), std::max<std::int64_t>(units, 1)));
  if (threads == 1) {
    work(std::int64_t{0}, count);
    return;
  }
  struct Context {
    const Work& work;
    std::int64_t count, grain, units, parts;
  } context{work, count, grain, units, std::min<std::int64_t>(units, 4 * std::int64_t{threads})};
  Parts parts(
      [](void* of, std::int64_t part) {
        const auto& c = *static_cast<Context*>(of);
        const auto bound = [&](std::int64_t p) { return std::min(c.count, c.units * p / c.parts * c.grain); };
        c.work(bound(part), bound(part + 1));
      },
      &context, context.parts, threads - 1);
  Pool::own().run(parts);
}

// Rows that are worth a part, when each costs about `values` reads.
inline std::int64_t grain_of(std::int64_t values) { return std::max<std::int64_t>(1, (1 << 15) / std::max<std::int64_t>(1, values)); }

}  // namespace pygsage
