#!/usr/bin/env bash
# Runs SCRIPT as a service of a systemd of its own: process 1 of new namespaces, over a root that keeps nothing. It finds the units of
# deploy/systemd, the programs in /usr/bin and STORE as /var/lib/moed/model.moed; what it prints is in OUT/log. As root.
# usage: systemd_in_namespaces.sh BIN STORE SCRIPT OUT
set -euo pipefail

if [ "${1:-}" != --inside ]; then
  groups=$(awk '/ - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
  own=$groups/moed-systemd-test-$$
  mkdir "$own"
  # The group is empty when systemd has ended.
  trap 'find "$own" -depth -type d -exec rmdir {} +' EXIT
  (
    echo "$BASHPID" >"$own/cgroup.procs"
    exec timeout 240 unshare --mount --pid --cgroup --ipc --net --uts --fork --kill-child bash "$0" --inside "$@"
  )
  exit
fi

bin=$(realpath "$2") store=$(realpath "$3") script=$(realpath "$4") out=$(realpath "$5")
units=$(realpath "$(dirname "$0")/../../deploy/systemd")
ip link set lo up
mount --make-rprivate /
scratch=$out/scratch root=$out/scratch/root
mkdir "$scratch"
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$root"
for folder in run tmp dev; do mount -t tmpfs tmpfs "$root/$folder"; done
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=666
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
touch "$root/dev/ptmx"
mount --bind "$root/dev/pts/ptmx" "$root/dev/ptmx"

# Nothing but what is tested is started.
rm -rf "$root/etc/systemd/system"
mkdir -p "$root/etc/systemd/system/default.target.wants" "$root/etc/moed" "$root/var/lib/moed"
install -m 644 "$units"/*.service "$root/etc/systemd/system"
install -m 755 "$bin/moed" "$bin/moed-http" "$bin/moectl" "$root/usr/bin"
install -m 644 "$store" "$root/var/lib/moed/model.moed"
install -m 755 "$script" "$root/script"
printf '%032x\n' 1 >"$root/etc/machine-id"
printf '[Unit]\nDescription=Test\nRequires=basic.target\nAfter=basic.target\n' >"$root/etc/systemd/system/default.target"
ln -s ../script.service "$root/etc/systemd/system/default.target.wants"
cat >"$root/etc/systemd/system/script.service" <<UNIT
[Unit]
DefaultDependencies=no
After=basic.target
[Service]
Type=oneshot
ExecStart=/script
ExecStopPost=/bin/systemctl --no-block exit 0
StandardOutput=file:/out/log
StandardError=file:/out/log
UNIT
mkdir "$root/out" "$root/old"
mount --bind "$out" "$root/out"
cd "$root"
pivot_root . old
umount -l /old
mount --make-rshared /
exec env -i container=namespaces PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --log-target=journal --show-status=0
