# SPDX-License-Identifier: Apache-2.0
# benches.csv to ratios.csv: our best beside each rival of the same case; ratio above 1: we are faster.
BEGIN { FS = ","; OFS = ","; print "suite,case,batch,type,ours,ours_us,rival,rival_us,ratio" }
$1 == "suite" || $6 == "" { next }
{ key = $1 OFS $2 OFS $3 OFS $4 }
$5 ~ /^pare/ { if (!(key in best) || $6 < best[key]) { best[key] = $6 + 0; who[key] = $5 }; next }
{ rivals[++n] = key; name[n] = $5; time[n] = $6 + 0 }
END {
    for (i = 1; i <= n; i++) if (rivals[i] in best) {
        key = rivals[i]
        printf "%s,%s,%.3f,%s,%.3f,%.3f\n", key, who[key], best[key], name[i], time[i], time[i] / best[key]
    }
}
