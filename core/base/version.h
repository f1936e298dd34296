// What this build is.
#pragma once

namespace moed {

// "0.1.0 (g++ 12.2.0, Release, x86_64)", with the source revision where it is known.
const char* BuildVersion();
const char* Version();       // "0.1.0"
const char* BuildDetails();  // the part in parentheses

}  // namespace moed
