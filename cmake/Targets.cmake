# moed_library(NAME SOURCES a.cc b.cc DEPS x y): one static library, headers found from the project's root.
function(moed_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  moed_batches(${name})
  # What the fuzzer is to see of a library. Not the kernels: they read no foreign bytes, and it would slow every test down.
  if(NOT name MATCHES "^moed_(kernels|quant)$")
    if(MOED_FUZZ)
      target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
    # What waits for messages or runs once compiles in half the time with sanitizers where it is not optimised. What computes is.
    if(MOED_SANITIZE AND NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/(core|tools/pack)")
      target_compile_options(${name} PRIVATE -O0)
      moed_precompile(${name} plain_library)
    else()
      moed_precompile(${name} library)
    endif()
  endif()
endfunction()

# moed_cold(NAME...): what runs once, as command lines and reports do, does not earn the time that its optimisation takes.
function(moed_cold)
  foreach(name ${ARGN})
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
endfunction()

# moed_test(NAME SOURCES a_test.cc DEPS x [TIMEOUT seconds] [WHOLE] [SERIAL]): one GoogleTest program, registered with ctest test by
# test as NAME.Suite.Test, so that every core has work. tests/paths.h finds golden files and the built programs.
#   WHOLE   the program is one test, since what its tests share costs more than they do; it begins before the short ones
#   SERIAL  no other test runs beside one of these
function(moed_test name)
  cmake_parse_arguments(ARG "WHOLE;SERIAL" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} moed_test_paths GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  # Matchers compile in two thirds of the time, and a test's own code is hardly what takes long.
  if(MOED_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
  else()
    target_compile_options(${name} PRIVATE -O1)
  endif()
  moed_batches(${name})
  moed_precompile(${name} test <gmock/gmock.h> <gtest/gtest.h>)
  if(ARG_SERIAL)
    set(serial RUN_SERIAL ON)
  endif()
  if(ARG_WHOLE)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST 100 ${serial})
  else()
    gtest_discover_tests(${name} TEST_PREFIX ${name}. NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      EXTRA_ARGS --gtest_brief=1 PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${serial})
  endif()
endfunction()
