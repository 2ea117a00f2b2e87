# SPDX-License-Identifier: Apache-2.0
# cmake -DNAME=pare_text_x -DIN=FILE -DOUT=FILE.c -P embed.cmake: a file's bytes as a NUL-ended constant.
# IN may be empty: then so is the constant.
set(hex "")
if(IN)
  file(READ "${IN}" hex HEX)
endif()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n"
       bytes "${bytes}")
file(WRITE "${OUT}" "extern const unsigned char ${NAME}[];\nconst unsigned char ${NAME}[] = {${bytes}0};\n")
