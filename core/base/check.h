// MOED_CHECK: a broken invariant of our own ends the process with its place. Never for input.
#pragma once

#include <cstdio>
#include <cstdlib>

#define MOED_CHECK(condition)                                                                \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: invariant broken: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
