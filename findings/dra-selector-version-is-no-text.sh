#!/usr/bin/env bash
# A device selector that compares a version attribute with a string: `==` fails for every node, `!=` is always true.
#
# Expected: device.attributes["gpu.example.com"].driverVersion == "535.104.5" selects the devices that have
# that version, and `!=` the others; or the API server refuses both.
# What happens: the expression compiles, since an attribute's type is only known when it is evaluated. `==` of a
# version and a string is then an error ("no such overload"), for which DynamicResources ends the pod's entire scheduling
# attempt, not only for the node with that device. `!=` of the same two is true, even for a device with exactly that
# version. With the sides swapped, `==` is false, without an error.
# Versions: k8s.io/dynamic-resource-allocation 0.37.2 (Kubernetes 1.37.2).
# Source of the rule: Semver.Equal in apiserver's pkg/cel/semver.go; evalNe of cel-go's interpreter.
# Why it matters: a class that is meant to exclude one driver version with `!=` excludes nothing. A program that simulates
# the scheduler has to distinguish an error from a "no". semver("535.104.5") on the other side works as intended.
#
# Needs Go.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
version=v0.37.2
cat > go.mod <<MOD
module finding

go 1.26.0

require (
	k8s.io/api $version
	k8s.io/dynamic-resource-allocation $version
)
MOD
cat > main.go <<'GO'
// Evaluates selectors for a device whose driver has the version 535.104.5.
package main

import (
	"context"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

func main() {
	version := "535.104.5"
	device := cel.Device{Driver: "gpu.example.com", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"driverVersion": {VersionValue: &version},
	}}
	for _, expression := range []string{`DRIVER == "535.104.5"`, `DRIVER != "535.104.5"`, `"535.104.5" == DRIVER`, `DRIVER == semver("535.104.5")`} {
		full := strings.ReplaceAll(expression, "DRIVER", `device.attributes["gpu.example.com"].driverVersion`)
		compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(full, cel.Options{})
		if compiled.Error != nil {
			fmt.Println(expression, "does not compile:", compiled.Error)
			continue
		}
		matches, _, err := compiled.DeviceMatches(context.Background(), device)
		if err != nil {
			fmt.Println(expression, "fails:", err)
			continue
		}
		fmt.Println(expression, "is", matches)
	}
}
GO
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=mod" go build -o finding . 2> build.log || { cat build.log >&2; exit 2; }
echo "k8s.io/dynamic-resource-allocation $version"
./finding > got
cat got
cat > want <<'WANT'
DRIVER == "535.104.5" fails: no such overload
DRIVER != "535.104.5" is true
"535.104.5" == DRIVER is false
DRIVER == semver("535.104.5") is true
WANT
diff want got || { echo "the behaviour has changed" >&2; exit 1; }
