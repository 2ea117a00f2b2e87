# SPDX-License-Identifier: Apache-2.0
# Tests and programs linked to CUDA's own runtime, for a real device: NAME_device. In ctest they run
# where a device is and are skipped elsewhere; tests/gpu/bundle.sh takes them to other machines.

# They share libpare_gpu.so, the product with every symbol visible. All are linked to the toolkit's
# shared runtime: the static one hides what tests call, and a process has one runtime. Both libraries
# lie in ../lib beside the programs, here as in the bundle.
get_filename_component(CUDA_SHARED "${CUDA_RUNTIME}" DIRECTORY)
set(CUDA_SHARED ${CUDA_SHARED}/libcudart.so.13)
set(DEVICE_PROGRAMS OFF)
if(CUDA_LINKED AND EXISTS ${CUDA_SHARED})
  set(DEVICE_PROGRAMS ON)
  set(shared ${CMAKE_CURRENT_BINARY_DIR}/../lib)
  add_library(pare_gpu SHARED $<TARGET_OBJECTS:product> $<TARGET_OBJECTS:pare_parts>
              $<TARGET_OBJECTS:formats_pb> ${cuda_objects} ${hopper} ${blackwell})
  target_link_libraries(pare_gpu PUBLIC pare_needs ${CUDA_SHARED} PRIVATE ${LIBRARIES})
  set_target_properties(pare_gpu PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${shared}
                        BUILD_WITH_INSTALL_RPATH ON)
  file(MAKE_DIRECTORY ${shared})
  file(CREATE_LINK ${CUDA_SHARED} ${shared}/libcudart.so.13 SYMBOLIC)
endif()

# pare_device_program(NAME AS FILE SOURCES file.c... LIBRARIES library...): FILE is its name in the
# bundle.
function(pare_device_program name)
  cmake_parse_arguments(ARG "" "AS" "SOURCES;LIBRARIES" ${ARGN})
  if(DEVICE_PROGRAMS)
    add_executable(${name}_device ${ARG_SOURCES})
    target_link_libraries(${name}_device PRIVATE ${ARG_LIBRARIES} pare_gpu m)
    target_include_directories(${name}_device SYSTEM PRIVATE ${CUDA_INCLUDE})
    target_link_options(${name}_device PRIVATE -Wl,--disable-new-dtags)
    set_target_properties(${name}_device PROPERTIES LINKER_LANGUAGE CXX
                          BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib")
    set_property(GLOBAL APPEND PROPERTY GPU_PROGRAMS ${name}_device)
    set_property(GLOBAL APPEND_STRING PROPERTY GPU_LIST
                 "${ARG_AS} $<TARGET_FILE:${name}_device>\n")
  endif()
endfunction()

# pare_device_test(NAME source...): a test of the emulation that a device can run, too; that is not
# so where sources count or break the emulation's calls and do not ask where they are.
function(pare_device_test name)
  set(cases FALSE)
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    file(READ ${source} text)
    if(text MATCHES "cmocka_run_group_tests")
      set(cases TRUE)
    endif()
    if(text MATCHES "simt_(calls|launches|fail_at|set\\.|reports)" AND NOT text MATCHES "simt_emulated")
      return()
    endif()
  endforeach()
  if(DEVICE_PROGRAMS AND cases)
    pare_device_program(${name} AS test_${name} SOURCES ${ARGN}
                        LIBRARIES simt_device PkgConfig::CMOCKA)
    target_compile_definitions(${name}_device PRIVATE CASE_DEVICE=1)
    target_link_options(${name}_device PRIVATE -Wl,--wrap=_cmocka_run_group_tests)
    pare_simt_run(${name}_device ${name}_device)
  endif()
endfunction()

if(DEVICE_PROGRAMS)
  pare_cuda_objects(device_objects ${CMAKE_SOURCE_DIR}/tests/simt/warp.cu
                    ${CMAKE_SOURCE_DIR}/tests/simt/tensor.cu ${CMAKE_SOURCE_DIR}/tests/gpu/selftest.cu)
  set(gpu ${CMAKE_SOURCE_DIR}/tests/gpu)
  pare_cuda_objects(device_sm90 ${gpu}/selftest_sm90.cu ONLY 90a 100a)
  pare_cuda_objects(device_wgmma ${gpu}/selftest_wgmma.cu ONLY 90a)
  pare_cuda_objects(device_tcgen ${gpu}/selftest_tcgen.cu ONLY 100a)
  add_library(simt_device STATIC ${CMAKE_SOURCE_DIR}/tests/simt/on_device.c ${device_objects}
              ${device_sm90} ${device_wgmma} ${device_tcgen})
  target_link_libraries(simt_device PUBLIC pare_gpu PkgConfig::CMOCKA m)
  pare_device_test(simt_warp test_warp.c)
  pare_device_test(simt_tensor test_tensor.c)
  pare_device_test(cuda_histogram ../cuda/test_histogram.c)
endif()
