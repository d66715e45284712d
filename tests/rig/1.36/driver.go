// In place of ../driver/release.go for 1.36: drivers say nothing of the health of devices there.
package main
