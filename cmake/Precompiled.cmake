# With MOED_BATCHES the headers that nearly every file includes are read once for all libraries and once for all tests.
set(MOED_COMMON_HEADERS
  <algorithm> <array> <functional> <map> <memory> <optional> <span> <string> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_format.h> <absl/synchronization/mutex.h>
  <nlohmann/json.hpp>)

# moed_precompile(TARGET KIND [HEADERS]): TARGET shares the headers of all targets of this KIND, which have the same flags. The first one
# of a kind makes a target that owns them.
function(moed_precompile target kind)
  if(NOT MOED_BATCHES)
    return()
  endif()
  # Precompiled headers must be read with the flags that they were written with, and some libraries ask for this one.
  target_compile_options(${target} PRIVATE -pthread)
  set(owner moed_precompiled_${kind})
  if(NOT TARGET ${owner})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${owner}.cc CONTENT "")
    add_library(${owner} STATIC ${CMAKE_BINARY_DIR}/${owner}.cc)
    get_target_property(options ${target} COMPILE_OPTIONS)
    if(options)
      target_compile_options(${owner} PRIVATE ${options})
    endif()
    get_target_property(libraries ${target} LINK_LIBRARIES)
    list(FILTER libraries INCLUDE REGEX "^GTest::")
    target_link_libraries(${owner} PRIVATE ${libraries})  # for their definitions
    target_precompile_headers(${owner} PRIVATE ${MOED_COMMON_HEADERS} ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
