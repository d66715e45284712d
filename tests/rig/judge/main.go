//go:debug randseednop=0

// Judge says what the real kube-scheduler would do with a cluster: its code is linked here, and fed from memory.
//
// It reads one request a line from its standard input and writes one answer a line:
//
//	{"do": "bind", "seed": 1, "objects": [...]}      where the scheduler puts the pods that wait
//	{"do": "verdicts", "objects": [...]}             which filters refuse each waiting pod on each node
//
// Objects are Kubernetes objects as kubectl prints them; the API server's defaults are filled in.
// Pods that wait are taken in the order of the request, as far as their priorities leave it open.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
)

type request struct {
	Do      string            `json:"do"`
	Seed    int64             `json:"seed"`
	Objects []json.RawMessage `json:"objects"`
}

func main() {
	klog.SetLogger(klog.Logger{})
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var answer any
		if err == nil {
			answer, err = answerTo(line)
		}
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func answerTo(line []byte) (any, error) {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, err
	}
	objects, err := read(asked.Objects)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch asked.Do {
	case "bind":
		return bind(ctx, asked.Seed, objects)
	case "verdicts":
		return verdicts(ctx, objects)
	}
	return nil, fmt.Errorf("nothing is known of %q", asked.Do)
}
