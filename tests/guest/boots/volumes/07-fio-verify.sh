# Random writes of mixed sizes, deep, every block checked by its own checksum, also much later.
connect -i 2
job="--name=mixed --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bsrange=4k-128k
    --bs_unaligned=0 --size=12m --offset=64m --verify=crc32c --verify_fatal=1 --randseed=7"
# shellcheck disable=SC2086
expect "written and verified" fio $job --filename="$(volume 1)" --do_verify=1
# shellcheck disable=SC2086
expect "4 KiB blocks too" fio $job --filename="$(volume 2)" --do_verify=1
disconnect
connect -i 1
# shellcheck disable=SC2086
expect "verified after another connect" fio $job --filename="$(volume 1)" --verify_only
