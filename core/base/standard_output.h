// What a program ends with, once it has printed what it was asked for.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace moed {

// `code`; 1 where that is 0 and standard output has not taken everything, which standard error then says in the name of
// `program`.
inline int EndOfOutput(const char* program, int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const char* why = errno != 0 ? std::strerror(errno) : "an earlier write failed";
  std::fprintf(stderr, "%s: standard output is not whole: %s\n", program, why);
  return code != 0 ? code : 1;
}

}  // namespace moed
