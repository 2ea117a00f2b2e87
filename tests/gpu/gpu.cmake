# SPDX-License-Identifier: Apache-2.0
# Programs for a real GPU, and what of them can be tested without one. Included by tests/simt.
set(gpu ${CMAKE_SOURCE_DIR}/tests/gpu)

set(wrappers ${gpu}/selftest.cu ${gpu}/selftest_sm90.cu ${gpu}/selftest_wgmma.cu
    ${gpu}/selftest_tcgen.cu)
pare_simt_program(simt_selftest KERNELS ${wrappers} SOURCES ${gpu}/simt_selftest.c)
add_library(simt_selftest_wrong OBJECT ${wrappers})
target_compile_definitions(simt_selftest_wrong PRIVATE SELFTEST_PLANT)
target_compile_options(simt_selftest_wrong PRIVATE ${PLAIN})
add_executable(simt_selftest_planted ${gpu}/simt_selftest.c $<TARGET_OBJECTS:simt_selftest_wrong>)
target_link_libraries(simt_selftest_planted PRIVATE simt_plain libpare m)
set_target_properties(simt_selftest_planted PROPERTIES LINKER_LANGUAGE CXX)
add_test(NAME simt_selftest COMMAND sh ${gpu}/selftest.sh $<TARGET_FILE:simt_selftest_plain>
         $<TARGET_FILE:simt_selftest_planted> $<TARGET_FILE:simt_selftest_asan>
         $<TARGET_FILE:simt_selftest_check>)
set_tests_properties(simt_selftest PROPERTIES LABELS simt)

# The benchmark of kernels, with the emulation's cuBLASLt: tiny shapes, every line of it checked
set(bench ${gpu}/bench.c ${gpu}/bench_blas.c ${gpu}/bench_memory.c ${gpu}/bench_ours.c)
pare_emulated_program(gpu_bench SOURCES ${bench} DEFINITIONS BENCH_STUB=1)
foreach(build plain asan)
  add_test(NAME gpu_bench_${build} COMMAND sh ${gpu}/test_bench.sh $<TARGET_FILE:gpu_bench_${build}>)
  set_tests_properties(gpu_bench_${build} PROPERTIES LABELS simt)
endforeach()

# What makes a net for run.sh where no file of one is at hand
add_executable(gpu_make_net ${gpu}/make_net.c)
target_link_libraries(gpu_make_net PRIVATE libpare m)

# The same for a device, the program itself with its libraries beside it, and all of it in a bundle
if(DEVICE_PROGRAMS)
  pare_device_program(gpu_bench AS gpu_bench SOURCES ${bench})
  pare_device_program(simt_selftest AS simt_selftest SOURCES ${gpu}/simt_selftest.c
                      LIBRARIES simt_device)
  pare_device_program(make_net AS make_net SOURCES ${gpu}/make_net.c)
  pare_device_program(pare AS pare SOURCES ${CMAKE_SOURCE_DIR}/tools/pare.c LIBRARIES paretools)
  get_property(programs GLOBAL PROPERTY GPU_PROGRAMS)
  get_property(list GLOBAL PROPERTY GPU_LIST)
  add_custom_target(gpu_programs DEPENDS ${programs} simt_selftest_plain)
  execute_process(COMMAND ${CUDA_NVCC} --version OUTPUT_VARIABLE version)
  string(REGEX MATCH "V[0-9][0-9.]*" version "${version}")
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/gpu_programs.txt CONTENT "${list}")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/gpu_programs.facts
       "code=${CUDA_CODE}\ntoolkit=nvcc ${version}\n")
  add_test(NAME gpu_bundle COMMAND sh ${gpu}/test_bundle.sh ${CMAKE_BINARY_DIR}
           $<TARGET_FILE:pare_emulated> $<TARGET_FILE:gpu_bench_plain>
           $<TARGET_FILE:simt_selftest_plain> $<TARGET_FILE:cuda_nets_plain>)
  # COST: the longest begins first, so that it does not run alone at the end
  set_tests_properties(gpu_bundle PROPERTIES LABELS "simt;slow" SKIP_RETURN_CODE 77 TIMEOUT 900
                       COST 1000)
else()
  pare_skipped(gpu_bundle "there is no CUDA toolkit with a libcudart.so.13 to build it with")
endif()
