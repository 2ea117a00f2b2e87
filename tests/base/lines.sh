#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/lines.awk on planted output of ctest: only the program that must fail may turn a failure into PASS,
# and a program that ran no case fails. usage: lines.sh
cd "$(dirname "$0")/../.." || exit 1
status=0

# gives NAME EXPECTED: standard input is what ctest -V prints
gives() {
    got=$(awk -v prefix= -v must_fail=base_fails -f tests/lines.awk)
    if [ "$got" = "$2" ]; then
        echo "PASS $1"
    else
        echo "FAIL $1: got '$got', expected '$2'"
        status=1
    fi
}

gives passed 'PASS good/adds' <<'END'
      Start  1: good
1: [==========] Running 1 test(s).
1: [ RUN      ] adds
1: [       OK ] adds
1: [==========] 1 test(s) run.
1: [  PASSED  ] 1 test(s).
 1/1 Test  #1: good .............   Passed    0.00 sec
END
gives failed 'FAIL bad/adds: 1 != 2' <<'END'
      Start  1: bad
1: [ RUN      ] adds
1: 1 != 2
1: [  FAILED  ] adds
1: [==========] 1 test(s) run.
 1/1 Test  #1: bad .............***Failed    0.00 sec
END
gives failed_but_exit_0 'FAIL liar: a case failed, but the program ended well
FAIL liar/adds: 1 != 2' <<'END'
      Start  1: liar
1: [ RUN      ] adds
1: 1 != 2
1: [  FAILED  ] adds
1: [==========] 1 test(s) run.
 1/1 Test  #1: liar .............   Passed    0.00 sec
END
gives must_fail 'PASS base_fails: fails, as it must' <<'END'
      Start  1: base_fails
1: [ RUN      ] fails
1: 1 != 2
1: [  FAILED  ] fails
1: [==========] 1 test(s) run.
 1/1 Test  #1: base_fails .............   Passed    0.00 sec
END
gives must_fail_passes 'FAIL base_fails: no failure was seen: the harness is broken' <<'END'
      Start  1: base_fails
1: [ RUN      ] fails
1: [       OK ] fails
1: [==========] 1 test(s) run.
1: [  PASSED  ] 1 test(s).
 1/1 Test  #1: base_fails .............***Failed    0.00 sec
END
gives no_case 'FAIL empty: it ran no case' <<'END'
      Start  1: empty
1: [==========] Running 0 test(s).
1: [==========] 0 test(s) run.
1: [  PASSED  ] 0 test(s).
 1/1 Test  #1: empty .............   Passed    0.00 sec
END
gives silent 'FAIL silent: it ran no case' <<'END'
      Start  1: silent
 1/1 Test  #1: silent .............   Passed    0.00 sec
END
gives skipped 'SKIP gone: no GPU' <<'END'
      Start  1: gone
1: no GPU
 1/1 Test  #1: gone .............***Skipped    0.00 sec
END
exit $status
