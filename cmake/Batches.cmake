# MOED_BATCHES: a target's sources are compiled some at a time, each batch as one file that includes them. What they share is read and
# instantiated once: a third of the time from nothing. Only in the preset `check`: what a file includes, the release build sees, which
# compiles each alone. Where names of two files meet, cmake/compiled_alone.txt names one of them.
option(MOED_BATCHES "Compile sources in batches" OFF)
set(compiled_alone_file ${CMAKE_CURRENT_LIST_DIR}/compiled_alone.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${compiled_alone_file})
file(STRINGS ${compiled_alone_file} MOED_COMPILED_ALONE REGEX "^[^#]")
list(TRANSFORM MOED_COMPILED_ALONE REPLACE " .*" "")

# moed_batches(TARGET): of the directory that is read.
function(moed_batches target)
  if(NOT MOED_BATCHES)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    foreach(alone ${MOED_COMPILED_ALONE})
      if(path MATCHES "^${alone}")
        set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
  endforeach()
endfunction()
