// The page at /, for talking to the model: its files, which are compiled in.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "server/http/router.h"

namespace moed::http {

struct PageFile {
  std::string_view path;
  std::string_view contents;
};
std::span<const PageFile> PageFiles();

// A route for each file. They need no key: what the page asks for does.
std::vector<Route> PageRoutes();

}  // namespace moed::http
