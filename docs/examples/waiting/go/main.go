// An example of docs/submitter.md: inserts a batch of rows and prints `ID STATUS` of each end, until no row is live.
//
//	DATABASE_URL=… wait BATCH [DEADLINE_SECONDS [ASK_EVERY_SECONDS]]
//
// Exits with 0 when all rows have ended, with 1 at the deadline or when the database refuses. A second run with the same
// name inserts nothing: it waits for the rows that are there.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	insert = `INSERT INTO dispatch.tasks (queue, batch, dedupe_key, payload)
		SELECT $1, $2, $2 || '/' || part, to_jsonb(part) FROM generate_series(1, 5) AS part
		WHERE NOT EXISTS (SELECT FROM dispatch.tasks WHERE queue = $1 AND batch = $2 AND submitted_by = dispatch.own_name())`
	live = `SELECT now(), coalesce((SELECT waiting + processing > 0 FROM dispatch.batch_status
		WHERE queue = $1 AND batch = $2 AND submitted_by = dispatch.own_name()), false)`
	ended = `SELECT id, status, finished_at FROM dispatch.task_ended_since(coalesce($3, (
			SELECT min(created_at) FROM dispatch.tasks WHERE queue = $1 AND batch = $2 AND submitted_by = dispatch.own_name()
		)) - interval '1 minute') WHERE queue = $1 AND batch = $2`
	away = "08 25 40 53 55 57" // classes of SQLSTATE: the server is busy, locked, stopped, or a standby
)

// end is one end of a row. A row that is retried ends again, at another time.
type end struct{ id, at int64 }

// batch has the last answer and the ends that were told. Both outlive a connection.
type batch struct {
	queue, name string
	answered    *time.Time // the last answer; nil: none yet
	told        map[end]bool
	heard       bool // a notification came
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: DATABASE_URL=… wait BATCH [DEADLINE_SECONDS [ASK_EVERY_SECONDS]]")
	}
	ctx, stop := context.WithTimeout(context.Background(), seconds(2, 3600))
	defer stop()
	b, every := batch{queue: "default", name: os.Args[1], told: map[end]bool{}}, seconds(3, 60)
	config, err := pgx.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil { // it has parts of the URL
		log.Fatal("DATABASE_URL is not postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { b.heard = true }
	for err = b.wait(ctx, config, every); err != nil; err = b.wait(ctx, config, every) {
		var said *pgconn.PgError
		if ctx.Err() != nil {
			log.Fatal("the batch has not ended at the deadline")
		} else if errors.As(err, &said) && !strings.Contains(away, said.Code[:2]) {
			log.Fatal("the database refuses: ", err)
		}
		log.Print("the database is away and asked again: ", err)
		time.Sleep(time.Second)
	}
}

func seconds(place, otherwise int) time.Duration {
	if len(os.Args) > place {
		given, err := strconv.Atoi(os.Args[place])
		if err != nil {
			log.Fatalf("%q is not a whole number of seconds", os.Args[place])
		}
		otherwise = given
	}
	return time.Duration(otherwise) * time.Second
}

// wait ends with nil when no row of the batch is live.
func (b *batch) wait(ctx context.Context, config *pgx.ConnConfig, every time.Duration) error {
	limited, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	connection, err := pgx.ConnectConfig(limited, config)
	if err != nil {
		return err
	}
	defer connection.Close(limited)
	if _, err = connection.Exec(limited, "LISTEN dispatch_done"); err != nil {
		return err
	} else if _, err = connection.Exec(limited, insert, b.queue, b.name); err != nil {
		return err
	}
	for {
		b.heard = false
		if isLive, err := b.ask(ctx, connection); err != nil || !isLive {
			return err
		}
		if err := b.listen(ctx, connection, every); err != nil {
			return err
		}
		time.Sleep(time.Second) // the notification is also for ends that are seen a moment later
	}
}

// listen returns after a notification, or when it is time to ask without one.
func (b *batch) listen(ctx context.Context, connection *pgx.Conn, every time.Duration) error {
	limited, stop := context.WithTimeout(ctx, every)
	defer stop()
	if b.heard { // while the database was asked
		return nil
	}
	err := connection.PgConn().WaitForNotification(limited)
	if pgconn.Timeout(err) && ctx.Err() == nil {
		return nil
	}
	return err
}

// ask prints new ends. If no row is live any more, it asks from the beginning on, so that no end is missed.
func (b *batch) ask(ctx context.Context, connection *pgx.Conn) (isLive bool, err error) {
	limited, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	var now, at time.Time
	if err = connection.QueryRow(limited, live, b.queue, b.name).Scan(&now, &isLive); err != nil {
		return false, err
	} else if !isLive {
		b.answered = nil
	}
	rows, _ := connection.Query(limited, ended, b.queue, b.name, b.answered)
	var one end
	var status string
	_, err = pgx.ForEachRow(rows, []any{&one.id, &status, &at}, func() error {
		if one.at = at.UnixMicro(); !b.told[one] {
			fmt.Println(one.id, status)
			b.told[one] = true
		}
		return nil
	})
	if err == nil {
		b.answered = &now
	}
	return isLive, err
}
