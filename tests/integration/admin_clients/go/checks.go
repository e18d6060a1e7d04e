package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/rest"
)

// checks runs one check after the other and prints a line for each: "ok NAME" or "FAILED NAME: why".
type checks struct {
	// For how long a value that was set may be unseen; 0 for a server on which it holds at once.
	patience time.Duration
	failed   int
}

func (c *checks) check(name string, step func() error) {
	err := step()
	if err == nil {
		fmt.Println("ok " + name)
		return
	}
	c.failed++
	fmt.Printf("FAILED %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
}

// refused: the client tells this status, and why.
func (c *checks) refused(name string, code int, step func() error) {
	c.check(name, func() error {
		err := step()
		var refusal rest.Error
		switch {
		case err == nil:
			return errors.New("not refused")
		case !errors.As(err, &refusal):
			return fmt.Errorf("not an error of the admin API: %w", err)
		case refusal.Code != code:
			return fmt.Errorf("expected %d, got %w", code, err)
		case refusal.Reason == "":
			return errors.New("no reason is given")
		}
		return nil
	})
}

// policy: set, seen, removed, and then what it was at first.
func policy[T any](c *checks, name string, value T, set func(T) error, get func() (T, error), remove func() error) {
	c.check(name, func() error {
		before, err := get()
		if err != nil {
			return err
		}
		if reflect.DeepEqual(before, value) {
			return fmt.Errorf("it is %v before it is set", value)
		}
		return all(
			func() error { return set(value) },
			func() error { return seen(c, value, get) },
			remove,
			func() error { return seen(c, before, get) },
		)
	})
}

// setting: set and seen, and set back to what it was.
func setting[T any](c *checks, name string, value T, set func(T) error, get func() (T, error)) {
	before, err := get()
	if err != nil {
		c.check(name, func() error { return err })
		return
	}
	policy(c, name, value, set, get, func() error { return set(before) })
}

func seen[T any](c *checks, expected T, get func() (T, error)) error {
	deadline := time.Now().Add(c.patience)
	for {
		found, err := get()
		if err != nil {
			return err
		}
		if reflect.DeepEqual(expected, found) {
			return nil
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("expected %+v, found %+v", expected, found)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// same: what get returns is this.
func same[T any](expected T, get func() (T, error)) error {
	return seen(&checks{}, expected, get)
}

// all runs the steps until one fails.
func all(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func that(holds bool, what string) error {
	if holds {
		return nil
	}
	return errors.New(what)
}

func pointer[T any](value T) *T { return &value }
