# SPDX-License-Identifier: Apache-2.0
# Finds a CUDA toolkit, installed or fetched by tests/simt/toolkit.sh: sets CUDA_HOME_FOUND (empty
# where there is none), CUDA_INCLUDE, CUDA_NVCC (empty where only headers are there, or PARE_CUDA
# is OFF), CUDA_RUNTIME (the static runtime library), and pare_cuda_objects().
set(PARE_CUDA AUTO CACHE STRING "nvcc compiles GPU kernels: AUTO (where it is found), ON, OFF")
set(PARE_CUDA_HOME "" CACHE PATH "CUDA toolkit; empty: CUDA_HOME, nvcc's on PATH, the usual places")
set(CUDA_HOME_FOUND "")
set(CUDA_NVCC "")
set(CUDA_RUNTIME "")
find_program(PARE_NVCC_ON_PATH nvcc)
mark_as_advanced(PARE_NVCC_ON_PATH)
set(homes ${PARE_CUDA_HOME} $ENV{CUDA_HOME})
if(PARE_NVCC_ON_PATH)
  file(REAL_PATH ${PARE_NVCC_ON_PATH} nvcc)
  get_filename_component(nvcc ${nvcc} DIRECTORY)
  get_filename_component(nvcc ${nvcc} DIRECTORY)
  list(APPEND homes ${nvcc})
endif()
list(APPEND homes /usr/local/cuda ${CMAKE_BINARY_DIR}/cuda/nvidia/cu13
     ${CMAKE_SOURCE_DIR}/build/cuda/nvidia/cu13)
foreach(home ${homes})
  if(NOT CUDA_HOME_FOUND AND EXISTS ${home}/include/cuda_runtime_api.h)
    set(CUDA_HOME_FOUND ${home})
    set(CUDA_INCLUDE ${home}/include)
    if(EXISTS ${home}/bin/nvcc)
      set(CUDA_NVCC ${home}/bin/nvcc)
    endif()
    foreach(folder lib64 lib)
      if(EXISTS ${home}/${folder}/libcudart_static.a)
        set(CUDA_RUNTIME ${home}/${folder}/libcudart_static.a)
      endif()
    endforeach()
  endif()
endforeach()
if(PARE_CUDA STREQUAL "ON" AND NOT CUDA_NVCC)
  message(FATAL_ERROR "PARE_CUDA=ON, but nvcc was not found: set PARE_CUDA_HOME to a CUDA 13 "
          "toolkit, or run sh tests/simt/toolkit.sh build")
endif()
if(PARE_CUDA STREQUAL "OFF")
  set(CUDA_NVCC "")
endif()

# Machine code for these, and PTX of the newest for what comes later
set(CUDA_ARCHITECTURES 80 90)

# pare_cuda_objects(VARIABLE file.cu...): the objects that nvcc makes of kernel files
function(pare_cuda_objects variable)
  set(code)
  foreach(arch ${CUDA_ARCHITECTURES})
    list(APPEND code -gencode arch=compute_${arch},code=sm_${arch})
    set(newest ${arch})
  endforeach()
  list(APPEND code -gencode arch=compute_${newest},code=compute_${newest})
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(stem ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/nvcc/${stem}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/nvcc
      COMMAND ${CUDA_NVCC} -std=c++17 -O3 --fmad=false -I${CMAKE_SOURCE_DIR} ${code}
              -Xcompiler -fPIC,-Wall,-Wextra -Werror all-warnings -MD -MF ${object}.d
              -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${stem}.cu" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
