# SPDX-License-Identifier: Apache-2.0
# Finds a CUDA toolkit, installed or fetched by tests/simt/toolkit.sh: sets CUDA_HOME_FOUND (empty
# where there is none), CUDA_INCLUDE, CUDA_NVCC (empty where only headers are there, or PARE_CUDA
# is OFF), CUDA_RUNTIME (the static runtime library), CUDA_LINKED (the product gets the backend),
# CUDA_LIBRARIES (what it is linked with then), CUDA_CODE (80,90,100: what there is code for) and
# pare_cuda_objects(). What a build without one lacks is the GPU backend, nothing else.
set(PARE_CUDA AUTO CACHE STRING "The GPU backend: AUTO (where a CUDA 13 toolkit is found), ON, OFF")
set_property(CACHE PARE_CUDA PROPERTY STRINGS AUTO ON OFF)
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
if(NOT PARE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PARE_CUDA=${PARE_CUDA}: expected AUTO, ON or OFF")
endif()
if(PARE_CUDA STREQUAL "OFF")
  set(CUDA_NVCC "")
endif()
set(CUDA_LINKED OFF)
if(CUDA_NVCC AND CUDA_RUNTIME AND (PARE_CUDA STREQUAL "ON" OR NOT (PARE_FUZZ OR PARE_SANITIZE)))
  set(CUDA_LINKED ON)
endif()
if(PARE_CUDA STREQUAL "ON" AND NOT CUDA_LINKED)
  message(FATAL_ERROR "PARE_CUDA=ON, but no nvcc with a libcudart_static.a was found: set "
          "PARE_CUDA_HOME to a CUDA 13 toolkit, or run sh tests/simt/toolkit.sh build")
endif()

# Machine code for these, all made of the first one's PTX, which is kept for what comes later: the
# front end then runs once a file (kernels use nothing of newer architectures); of CUDA_DEPENDENT's
# files what is for 90 and later is made of PTX of 90
set(PARE_CUDA_ARCHITECTURES "80;90;100" CACHE STRING "GPU architectures, ascending: 80 is sm_80")
set(CUDA_ARCHITECTURES ${PARE_CUDA_ARCHITECTURES})
list(GET CUDA_ARCHITECTURES 0 CUDA_OLDEST)
list(JOIN CUDA_ARCHITECTURES "," CUDA_CODE)

# nvcc's host code wants __cxa_guard_* of the C++ library
if(CUDA_LINKED)
  set(CUDA_LIBRARIES ${CUDA_RUNTIME} -lstdc++ -lrt -lpthread -ldl)
  message(STATUS "GPU backend: ${CUDA_NVCC}, ${CUDA_RUNTIME}, code for ${CUDA_CODE}")
elseif(PARE_CUDA STREQUAL "OFF" OR CUDA_RUNTIME)
  message(STATUS "GPU backend: not wanted here; pare computes on the CPU")
else()
  message(STATUS "GPU backend: no CUDA 13 toolkit (nvcc, libcudart_static.a) was found; pare "
          "computes on the CPU")
endif()

# pare_cuda_objects(VARIABLE file.cu... [ONLY 90a...]): the objects that nvcc makes of kernel files;
# beside each, STEM.ptxas says what registers and memory its kernels take. ONLY: code for those
# architectures alone, no PTX
function(pare_cuda_objects variable)
  cmake_parse_arguments(ARG "" "" "ONLY" ${ARGN})
  set(ptx arch=compute_${CUDA_OLDEST})
  set(code -gencode ${ptx},code=compute_${CUDA_OLDEST})
  set(dependent ${code})
  foreach(arch ${CUDA_ARCHITECTURES})
    list(APPEND code -gencode ${ptx},code=sm_${arch})
    if(arch LESS 90)
      list(APPEND dependent -gencode ${ptx},code=sm_${arch})
    else()
      list(APPEND dependent -gencode arch=compute_90,code=sm_${arch})
    endif()
  endforeach()
  if(ARG_ONLY)
    set(code)
    foreach(arch ${ARG_ONLY})
      list(APPEND code -gencode arch=compute_${arch},code=sm_${arch})
    endforeach()
  endif()
  set(objects)
  foreach(source ${ARG_UNPARSED_ARGUMENTS})
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(stem ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/nvcc/${stem}.o)
    set(own ${code})
    if(source IN_LIST CUDA_DEPENDENT)
      set(own ${dependent})
    endif()
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/nvcc
      COMMAND sh ${CMAKE_SOURCE_DIR}/runtime/cuda/compile.sh
              ${CMAKE_CURRENT_BINARY_DIR}/nvcc/${stem}.ptxas
              ${CMAKE_C_COMPILER_LAUNCHER} ${CUDA_NVCC} -std=c++20 -O3 --fmad=false
              -I${CMAKE_SOURCE_DIR} ${own} -Xptxas -v -Xcompiler -fPIC,-Wall,-Wextra,-fno-exceptions,-Wno-missing-field-initializers,-Wno-deprecated-enum-enum-conversion
              -Werror all-warnings -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${stem}.cu" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
