#!/usr/bin/env bash
# A kubelet's graceful shutdown of more than 30 seconds does not start on a machine with unattended-upgrades.
#
# Expected: a kubelet with `shutdownGracePeriod: 2m` writes a drop-in for logind that allows the delay, and
# then holds back the shutdown until its pods have ended.
# What happens: the kubelet writes /etc/systemd/logind.conf.d/99-kubelet.conf. Debian's unattended-upgrades ships
# /usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf with InhibitDelayMaxSec=30. systemd sorts
# drop-ins by file name, regardless of folder, and 'u' comes after '9', so 30 seconds applies. The kubelet sees that its
# value is not in effect, logs one error and continues without any graceful shutdown, not even one of 30 seconds.
# Workaround (third case below): mask the drop-in with a link to /dev/null of the same name in /etc.
# Versions: kubelet 1.37.2 (its nodeshutdown package), systemd 257.13, unattended-upgrades 2.12 (Debian 13).
# Source of the rule: logind.conf(5) and systemd's order of drop-ins; pkg/kubelet/nodeshutdown of Kubernetes.
# Why it matters: templates on Proxmox VE are often made from cloud images that include unattended-upgrades. If the
# host shuts such a node down, its pods end without the kubelet: in no particular order, without preStop hooks, still listed as
# endpoints. The Node shows no sign of this in advance.
#
# Needs root (namespaces, chroot), apt with Debian's keyring, Go. D-Bus, logind and the kubelet's manager are
# the real ones. The program only answers systemd's KillUnit, through which the kubelet makes logind reload.
set -euo pipefail

[ "$(id -u)" = 0 ] || { echo "run this as root: it makes namespaces and a chroot" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$work"/apt/{lists/partial,cache/archives/partial} "$work/go" \
  "$root"/{proc,sys,dev,run,tmp,etc,usr/bin,usr/sbin,usr/lib,usr/lib64,var}

# --- Debian 13: systemd, D-Bus and their dependencies, unpacked into a folder
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main' > "$work/apt/sources.list"
apt=(-o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=/nonexistent
  -o "Dir::State::Lists=$work/apt/lists" -o Dir::State::status=/dev/null -o "Dir::Cache=$work/apt/cache"
  -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
apt-get -qq "${apt[@]}" update
apt-get -qq "${apt[@]}" -y --download-only --no-install-recommends install \
  systemd=257.13-1~deb13u1 dbus-daemon=1.16.2-2 > /dev/null
(cd "$work/apt/cache/archives" && apt-get -qq "${apt[@]}" download unattended-upgrades=2.12)
for link in bin sbin lib lib64; do ln -s "usr/$link" "$root/$link"; done
ln -s /run "$root/var/run"
for deb in "$work"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$root"; done
echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
echo 'root:x:0:' > "$root/etc/group"
cat > "$root/bus.conf" <<'BUS'
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>
  </policy>
</busconfig>
BUS

# --- the kubelet's manager
cd "$work/go"
k8s=v1.37.2
module=$(go mod download -json "k8s.io/kubernetes@$k8s" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
{
  printf 'module finding\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes %s\n\nreplace (\n' "$k8s"
  sed -n 's#^\t\(k8s.io/[a-z-]*\) => ./staging.*#\t\1 => \1 v0.'"${k8s#v1.}"'#p' "$module"
  echo ')'
} > go.mod
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown/systemd"
)

const dropIn = "unattended-upgrades-logind-maxdelay.conf"

var logind *exec.Cmd

// systemd answers the only call that the kubelet makes to systemd itself, which sends logind a SIGHUP.
type systemdManager struct{}

func (systemdManager) KillUnit(unit, who string, signal int32) *dbus.Error {
	if err := logind.Process.Signal(syscall.Signal(signal)); err != nil {
		return dbus.MakeFailedError(err)
	}
	return nil
}

func must(err error) {
	if err != nil {
		fmt.Println("could not run:", err)
		os.Exit(2)
	}
}

func waitFor(what string, ready func() bool) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ready() {
			return
		}
	}
	must(fmt.Errorf("no %s after 20 s", what))
}

// shutdownManager restarts logind, then starts the kubelet's manager with a grace period of two minutes.
func shutdownManager(title string) {
	os.Remove("/etc/systemd/logind.conf.d/99-kubelet.conf")
	os.RemoveAll("/run/systemd/inhibit") // the lock of the case before
	logind = exec.Command("/usr/lib/systemd/systemd-logind")
	must(logind.Start())
	bus, err := systemd.NewDBusCon()
	must(err)
	var before time.Duration
	waitFor("logind", func() bool { before, err = bus.CurrentInhibitDelay(); return err == nil })
	ctx, stop := context.WithCancel(context.Background())
	started := nodeshutdown.NewManager(&nodeshutdown.Config{
		Logger:                          klog.Background(),
		Recorder:                        record.NewFakeRecorder(10),
		NodeRef:                         &v1.ObjectReference{Kind: "Node", Name: "n1"},
		GetPodsFunc:                     func() []*v1.Pod { return nil },
		SyncNodeStatusFunc:              func(context.Context) {},
		ShutdownGracePeriodRequested:    2 * time.Minute,
		ShutdownGracePeriodCriticalPods: 20 * time.Second,
		StateDirectory:                  "/run",
	}).Start(ctx)
	after, err := bus.CurrentInhibitDelay()
	must(err)
	inhibitors := 0
	var list [][]any
	must(bus.SystemBus.Object("org.freedesktop.login1", "/org/freedesktop/login1").
		Call("org.freedesktop.login1.Manager.ListInhibitors", 0).Store(&list))
	for _, i := range list {
		if i[1] == "kubelet" {
			inhibitors++
		}
	}
	result := "started"
	if started != nil {
		result = started.Error()
	}
	fmt.Printf("%s\n  logind's longest delay: %v, then %v\n  kubelet's locks: %d\n  kubelet: %s\n", title, before, after, inhibitors, result)
	stop()
	logind.Process.Kill()
	logind.Wait()
}

func main() {
	bus := exec.Command("/usr/bin/dbus-daemon", "--config-file=/bus.conf", "--nofork", "--nopidfile")
	must(bus.Start())
	waitFor("bus", func() bool { _, err := os.Stat("/run/dbus/system_bus_socket"); return err == nil })
	conn, err := dbus.ConnectSystemBus()
	must(err)
	must(conn.Export(systemdManager{}, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"))
	_, err = conn.RequestName("org.freedesktop.systemd1", 0)
	must(err)

	must(os.Rename("/usr/lib/systemd/logind.conf.d/"+dropIn, "/shipped"))
	shutdownManager("without unattended-upgrades:")
	must(os.Rename("/shipped", "/usr/lib/systemd/logind.conf.d/"+dropIn))
	shutdownManager("with unattended-upgrades as it is installed:")
	must(os.Symlink("/dev/null", "/etc/systemd/logind.conf.d/"+dropIn))
	shutdownManager("with its drop-in masked:")
	bus.Process.Kill()
}
GO
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=mod" go build -o "$root/finding" . 2> build.log || { cat build.log >&2; exit 2; }

# --- run it in its own namespaces
echo "kubelet $k8s, systemd 257.13-1~deb13u1, unattended-upgrades 2.12"
# shellcheck disable=SC2016
unshare --mount --pid --fork --kill-child sh -c '
  cd "$1" && mount -t proc proc proc && mount -t sysfs -o ro sysfs sys && mount -t tmpfs tmpfs run && mount -t tmpfs tmpfs dev
  for d in null zero urandom; do : > dev/$d && mount --bind /dev/$d dev/$d; done
  mkdir -p run/dbus run/systemd
  exec chroot . /finding' sh "$root" > "$work/got" 2> "$work/log" || { cat "$work/got" "$work/log" >&2; exit 2; }
cat "$work/got"
cat > "$work/want" <<'WANT'
without unattended-upgrades:
  logind's longest delay: 5s, then 2m0s
  kubelet's locks: 1
  kubelet: started
with unattended-upgrades as it is installed:
  logind's longest delay: 30s, then 30s
  kubelet's locks: 0
  kubelet: node shutdown manager was timed out after 5 attempts waiting for logind InhibitDelayMaxSec to update to 2m0s (ShutdownGracePeriod), current value is 30s
with its drop-in masked:
  logind's longest delay: 5s, then 2m0s
  kubelet's locks: 1
  kubelet: started
WANT
diff "$work/want" "$work/got" || { echo "the behaviour has changed" >&2; exit 1; }
