// A sentence for the end that a process comes to when a file that it has mapped is cut short.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#if defined(__linux__) || defined(__APPLE__)
#include <signal.h>
#include <unistd.h>
#endif

namespace pygsage {

#if defined(__linux__) || defined(__APPLE__)

// A signal handler can be handed nothing: what it needs has to lie where it finds it.
struct BusError {
  char text[512];
  std::size_t length = 0;
  struct sigaction before {};
};

inline BusError& bus_error() {
  static BusError told;
  return told;
}

// Has SIGBUS write `text` to standard error and end the process with status 1; an empty one puts back what was before.
inline void tell_bus_error(const std::string& text) {
  BusError& told = bus_error();
  if (told.length) sigaction(SIGBUS, &told.before, nullptr);
  told.length = std::min(text.size(), sizeof(told.text));
  std::memcpy(told.text, text.data(), told.length);
  if (!told.length) return;
  struct sigaction action {};
  action.sa_handler = [](int) {  // calls nothing that is not safe here
    const BusError& found = bus_error();
    if (write(STDERR_FILENO, found.text, found.length) < 0) _exit(1);
    _exit(1);
  };
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &told.before);
}

#else

inline void tell_bus_error(const std::string&) {}

#endif

}  // namespace pygsage
