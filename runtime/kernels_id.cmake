# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=TREE -DCOMPILER=TEXT -DOUT=FILE.c -DDEPENDS=FILE.d -P kernels_id.cmake: pare_kernels_id, a
# hash of the sources of all kernels and of the compilers, which timing caches are kept by.
file(GLOB_RECURSE files RELATIVE "${ROOT}"
     "${ROOT}/runtime/cpu/*.[ch]" "${ROOT}/runtime/cuda/*.[ch]"
     "${ROOT}/runtime/ops/*.h" "${ROOT}/runtime/base/*.h" # what kernels are made of, too
     "${ROOT}/runtime/cuda/*.cu" "${ROOT}/runtime/cuda/*.cuh")
list(SORT files)
set(all "${COMPILER}")
set(paths "")
foreach(file ${files})
  file(SHA256 "${ROOT}/${file}" sum)
  string(APPEND all "${file} ${sum}\n")
  string(APPEND paths " \\\n  ${ROOT}/${file}")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING "${id}" 0 16 id)
file(WRITE "${DEPENDS}" "${OUT}:${paths}\n")
file(WRITE "${OUT}" "extern const char pare_kernels_id[];\nconst char pare_kernels_id[] = \"${id}\";\n")
