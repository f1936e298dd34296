# The kernels of 64-bit ARM: moed_neon_sources. Only the files named with options may hold such instructions: nothing in them is
# called before the processor was asked.
set(moed_neon_sources)
foreach(name attention states dotprod_matmul i8mm_matmul ops processor)
  list(APPEND moed_neon_sources ${CMAKE_CURRENT_LIST_DIR}/neon_${name}.cc)
endforeach()
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/neon_dotprod_matmul.cc PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/neon_i8mm_matmul.cc PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+i8mm")
