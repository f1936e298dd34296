# MOED_BATCHES: some sources of a target are compiled as one file that includes them, with the headers that nearly every file includes
# precompiled (cmake/Precompiled.cmake). What they share is read and instantiated once: a third of the time from nothing. So build
# tools/demo.sh, tools/test.sh and tools/sanitize.sh --quick. But a change of one file compiles its batch again, and only a file compiled
# alone shows that it includes what it uses: the default, the image and tools/sanitize.sh without --quick. Where names of two files meet,
# cmake/compiled_alone.txt names one of them.
option(MOED_BATCHES "Compile sources in batches: faster from nothing, slower after a change" OFF)
set(compiled_alone_file ${CMAKE_CURRENT_LIST_DIR}/compiled_alone.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${compiled_alone_file})
file(STRINGS ${compiled_alone_file} MOED_COMPILED_ALONE REGEX "^[^#]")
list(TRANSFORM MOED_COMPILED_ALONE REPLACE " .*" "")

# moed_batches(TARGET): of the directory that is read.
function(moed_batches target)
  if(NOT MOED_BATCHES)
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # which takes a batch for the one file that a name may be hidden in
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
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
