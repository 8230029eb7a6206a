// An example of docs/author.md: takes the row of its container, runs work, reports.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var refused = regexp.MustCompile("^(22|DI|54001)")                                          // SQLSTATEs that are about the values of a call
var config, unreadable = pgx.ParseConfig(strings.TrimSpace(os.Getenv("TASK_DATABASE_URL"))) // a Secret made by `echo` ends with a newline
var errFinal, errCancel, errLost = errors.New("wrong input"), errors.New("cancel"), errors.New("lost")

// work is yours to replace. It is tried again after errors but errFinal. After the end of ctx it is done only if it returns JSON.
func work(ctx context.Context, payload []byte) ([]byte, error) {
	var order struct{ Rows, Seconds, Missing int }
	if err := json.Unmarshal(payload, &order); err != nil {
		return nil, errors.Join(errFinal, err)
	} else if order.Missing > 0 {
		return nil, errors.New("some input is missing")
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Duration(order.Seconds) * time.Second):
	}
	return json.Marshal(map[string]int{"rows": order.Rows})
}

func main() { os.Exit(run()) }

func run() int {
	stopped, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	var token, payload, env = "", "", os.Getenv
	for _, name := range []string{"TASK_ID", "TASK_START_KEY", "TASK_ATTEMPT", "TASK_LAUNCH", "JOB_UID", "TASK_DATABASE_URL"} {
		if env(name) == "" {
			log.Print(name, " is not set: see docs/author.md")
			return 2
		}
	}
	if unreadable != nil { // its words may be a part of the password
		log.Print("TASK_DATABASE_URL cannot be used: is it postgresql://USER:PASSWORD@HOST:PORT/DATABASE, percent-encoded?")
		return 2
	}
	config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // never a standby
	config.DefaultQueryExecMode = pgx.QueryExecModeExec                        // prepares nothing: a pooler may give the next message to another server
	patient, _ := context.WithTimeout(stopped, 5*time.Minute)                  // who waits longer only keeps its room from others
	err := ask(patient, []any{&token, &payload}, `SELECT run_token::text, coalesce(payload, 'null')::text
		FROM dispatch.task_start($1::bigint, $2::uuid, $3::integer, $4::integer, $5, $6, $7, $8)`, env("TASK_ID"), env("TASK_START_KEY"),
		env("TASK_ATTEMPT"), env("TASK_LAUNCH"), env("JOB_UID"), env("NODE_NAME"), env("POD_NAME"), rand.Text())
	if errors.Is(err, pgx.ErrNoRows) {
		return 0 // not ours, or not any more
	} else if err != nil {
		return 75 // the launch does not count as one that failed
	}
	ctx, end := context.WithCancelCause(stopped)
	go beat(ctx, end, token)
	result, err := work(ctx, []byte(payload))
	switch told := context.Cause(ctx); {
	case told == errLost:
		return 1
	case err == nil && (told == nil || result != nil):
		return finish(token, "succeeded", "", result)
	case told == errCancel:
		return finish(token, "failed", "", nil) // the row keeps the reason that came with the cancel
	case told != nil:
		return 143 // stopped from outside: the next launch takes over
	case errors.Is(err, errFinal):
		return finish(token, "failed", err.Error(), nil)
	}
	return finish(token, "retry", err.Error(), nil)
}

// beat gives signs of life; whatever the row says but `continue` ends work.
func beat(ctx context.Context, end context.CancelCauseFunc, token string) {
	every, _ := time.ParseDuration(cmp.Or(os.Getenv("TASK_HEARTBEAT_EVERY"), "15s"))
	for answer := ""; ctx.Err() == nil; time.Sleep(every) {
		err := ask(ctx, []any{&answer}, `SELECT dispatch.task_heartbeat($1::uuid)`, token)
		if err == nil && answer != "continue" {
			end(map[string]error{"cancel": errCancel, "lost": errLost}[answer])
		}
	}
}

func finish(token, outcome, fault string, result []byte) int {
	var status *string // nil: somebody else has the row by now
	err := ask(context.Background(), []any{&status}, `SELECT dispatch.task_finish($1::uuid, $2, nullif($3, ''), nullif($4, '')::jsonb)`,
		token, outcome, strings.ToValidUTF8(fault, "?"), string(result))
	if err != nil && result != nil {
		return finish(token, "failed", "the result cannot be stored: "+err.Error(), nil)
	} else if err != nil {
		return 69 // nobody could be told: the next launch takes over
	}
	return 0
}

// ask calls again and again, for each call may be repeated, unless its values are refused. No connection outlives its call.
func ask(ctx context.Context, into []any, statement string, values ...any) error {
	for {
		err := try(ctx, into, statement, values)
		if err == nil || errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		log.Print(err)
		if said := (&pgconn.PgError{}); errors.As(err, &said) && refused.MatchString(said.Code) || ctx.Err() != nil {
			return err
		}
		time.Sleep(2 * time.Second)
	}
}

func try(ctx context.Context, into []any, statement string, values []any) error {
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	bounded := config.Copy()
	bounded.RuntimeParams["statement_timeout"] = "8000" // a call that is given up here ends there, too
	connection, err := pgx.ConnectConfig(limited, bounded)
	if said := (&pgconn.PgError{}); errors.As(err, &said) { // perhaps a pooler, which takes no setting
		connection, err = pgx.ConnectConfig(limited, config)
	}
	if err != nil {
		return err
	}
	defer connection.Close(limited)
	return connection.QueryRow(limited, statement, values...).Scan(into...)
}
