#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One process of ranks.sh, which mpirun starts by this: it ends as the program does, and leaves its
# exit status in $RANKS.
trap : INT TERM # the program's to heed
me=$RANKS/$OMPI_COMM_WORLD_RANK
echo $$ >"$me.pid"
exec 3>&2 2>/dev/null # this shell would say who was killed
sh -c 'exec "$@" 2>&3 3>&-' sh "$@"
status=$?
echo $status >"$me.status"
[ $status -le 128 ] || { trap - INT TERM && kill -$((status - 128)) $$; }
exit $status
