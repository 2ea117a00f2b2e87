# SPDX-License-Identifier: Apache-2.0
# Says what is wrong with lines of benches.csv; nothing where they are as README.md promises.
BEGIN { FS = "," }
$1 == "suite" && NR == 1 { next }
NF != 11 { print "line " NR " has " NF " columns, expected 11"; next }
$1 !~ /^(conv|train|matmul|sparse|memory|net)$/ { print "line " NR ": suite " $1 }
$3 !~ /^[0-9]+$/ { print "line " NR ": batch " $3 }
$4 !~ /^(s8|f8e4m3|f16|bf16|f32|tf32)$/ { print "line " NR ": type " $4 }
$5 == "" { print "line " NR ": no one measured it" }
$11 ~ /^failed: ./ { if ($6 $7 $8 $9 $10 != "") print "line " NR ": failed, but has figures"; next }
!($6 > 0 && $7 > 0 && $7 <= $6) { print "line " NR ": median " $6 ", least " $7 }
!($8 >= 0) { print "line " NR ": spread " $8 }
!($9 > 0 && $10 ~ /^(Top\/s|GB\/s|1\/s)$/) { print "line " NR ": rate " $9 " " $10 }
END { if (NR == 0) print "no lines" }
