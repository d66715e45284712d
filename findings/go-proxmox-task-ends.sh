#!/usr/bin/env bash
# go-proxmox: waiting for a failed task gives no error, and a task that ended with warnings counts as failed.
#
# Expected: Task.Wait returns an error if the task has failed, and "WARNINGS: 1" is a success, as it is for
# Proxmox VE itself: the task did its work, and its log has the warning.
# What happens: Wait returns nil however a task ends; callers must check IsFailed or IsSuccessful after it. Both
# only accept "OK": a task that did its work with a warning is IsFailed, like one that did nothing. WaitForCompleteStatus
# returns false for both. Only ExitStatus has the task's final status text.
# Version: github.com/luthermonson/go-proxmox 0.8.2.
# Source of the rule: its tasks.go; Proxmox VE's PVE::UPID (pve-common: upid_status_is_error).
# Why it matters: Proxmox providers of Cluster API and Karpenter use this client. Code that relies on Wait continues
# with a clone that was never created. Code that relies on IsFailed repeats work that was already done, such as a removal
# that ended with a warning because the storage of one of the disks is gone.
#
# Needs Go. A local server gives the answers that Proxmox VE gives about a finished task.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
version=v0.8.2
printf 'module finding\n\ngo 1.26.0\n\nrequire github.com/luthermonson/go-proxmox %s\n' "$version" > go.mod
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
)

const upid = "UPID:pve1:000A1B2C:00D3E4F5:692000A0:qmdestroy:9000:k8s@pve!nodes:"

func main() {
	var end string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/nodes/pve1/tasks/"+upid+"/status") {
			http.Error(w, "unexpected request", http.StatusNotImplemented)
			return
		}
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		fmt.Fprintf(w, `{"data":{"upid":%q,"node":"pve1","id":"9000","type":"qmdestroy","user":"k8s@pve","tokenid":"nodes",`+
			`"pid":662316,"pstart":13886709,"starttime":1763704992,"status":"stopped","exitstatus":%q}}`, upid, end)
	}))
	defer server.Close()
	client := proxmox.NewClient(server.URL, proxmox.WithAPIToken("k8s@pve!nodes", "a secret"))
	for _, end = range []string{"OK", "WARNINGS: 1", "storage 'fast' does not exist"} {
		task := proxmox.NewTask(upid, client)
		err := task.Wait(context.Background(), 10*time.Millisecond, 5*time.Second)
		fmt.Printf("exitstatus %q\n  Wait: %v, IsSuccessful: %v, IsFailed: %v\n", end, err, task.IsSuccessful, task.IsFailed)
		ok, completed, err := proxmox.NewTask(upid, client).WaitForCompleteStatus(context.Background(), 3)
		fmt.Printf("  WaitForCompleteStatus: %v, completed: %v, error: %v\n", ok, completed, err)
	}
}
GO
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=mod" go build -o finding . 2> build.log || { cat build.log >&2; exit 2; }

echo "go-proxmox $version"
./finding > got 2> log || { cat got log >&2; exit 2; }
cat got
cat > want <<'WANT'
exitstatus "OK"
  Wait: <nil>, IsSuccessful: true, IsFailed: false
  WaitForCompleteStatus: true, completed: true, error: <nil>
exitstatus "WARNINGS: 1"
  Wait: <nil>, IsSuccessful: false, IsFailed: true
  WaitForCompleteStatus: false, completed: true, error: <nil>
exitstatus "storage 'fast' does not exist"
  Wait: <nil>, IsSuccessful: false, IsFailed: true
  WaitForCompleteStatus: false, completed: true, error: <nil>
WANT
diff want got || { echo "the behaviour has changed" >&2; exit 1; }
