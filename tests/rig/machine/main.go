// Command machine is the inside of one simulated guest, as far as a control plane can tell: what `kubeadm join` and the
// kubelet do there, by the code of kubeadm and of the kubelet themselves. Only what needs a machine is imitated: its
// hardware, its container runtime, its cgroups and mounts.
//
//	machine join    --dir DIR [hardware]   reads DIR/join.yaml; leaves what a kubelet needs in DIR
//	machine kubelet --dir DIR [hardware]   runs until it is killed
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// hardware is what the guest's kernel would tell.
type hardware struct {
	uuid   string
	cpus   int
	memory uint64
	disk   int64
	bootID string
}

// guest is one machine, and the folder that is its disk.
type guest struct {
	dir string
	hardware
}

func (g guest) path(name string) string { return filepath.Join(g.dir, name) }

func main() {
	var g guest
	flags := pflag.NewFlagSet("machine", pflag.ExitOnError)
	flags.StringVar(&g.dir, "dir", "", "folder of this machine")
	flags.StringVar(&g.uuid, "uuid", "", "SMBIOS uuid")
	flags.StringVar(&g.bootID, "boot-id", "", "id of this boot")
	flags.IntVar(&g.cpus, "cpus", 1, "vCPUs")
	flags.Uint64Var(&g.memory, "memory", 1<<30, "memory in bytes")
	flags.Int64Var(&g.disk, "disk", 10<<30, "root file system in bytes")
	klog.InitFlags(nil)
	if err := flags.Parse(os.Args[1:]); err != nil || g.dir == "" || flags.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: machine join|kubelet --dir DIR")
		os.Exit(2)
	}
	var err error
	switch flags.Arg(0) {
	case "join":
		err = g.join()
		if err != nil {
			// kubeadm's own words for a failed command.
			fmt.Fprintf(os.Stderr, "error: %v\nTo see the stack trace of this error execute with --v=5 or higher\n", err)
			os.Exit(1)
		}
	case "kubelet":
		err = g.kubelet(context.Background())
	default:
		err = fmt.Errorf("unknown command %q", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
