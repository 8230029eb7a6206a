/* An example of docs/submitter.md: inserts a batch of rows and prints `ID STATUS` of each end, until no row is live.

       JDBC_URL=… java -cp postgresql.jar Wait.java BATCH [DEADLINE_SECONDS [ASK_EVERY_SECONDS]]

   Exits with 0 when all rows have ended, with 1 at the deadline or when the database refuses. A second run with the same
   name inserts nothing: it waits for the rows that are there. Needs Java 17 or later; the driver is
   org.postgresql:postgresql 42.7 or later. */

import java.sql.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.logging.LogManager;
import org.postgresql.PGConnection;

class Wait {
    static final String INSERT = """
        INSERT INTO dispatch.tasks (queue, batch, dedupe_key, payload)
        SELECT q, b, b || '/' || part, to_jsonb(part) FROM (SELECT ?, ?) AS of (q, b), generate_series(1, 5) AS part
        WHERE NOT EXISTS (SELECT FROM dispatch.tasks WHERE queue = q AND batch = b AND submitted_by = dispatch.own_name())""";
    static final String LIVE = """
        SELECT now()::text, (SELECT waiting + processing > 0 FROM dispatch.batch_status
                             WHERE queue = ? AND batch = ? AND submitted_by = dispatch.own_name())""";
    static final String ENDED = """
        SELECT e.id, e.status, e.finished_at::text FROM (SELECT ?, ?, ?::timestamptz) AS of (q, b, since),
            dispatch.task_ended_since(coalesce(since, (
                SELECT min(created_at) FROM dispatch.tasks WHERE queue = q AND batch = b AND submitted_by = dispatch.own_name()
            )) - interval '1 minute') AS e WHERE e.queue = q AND e.batch = b""";
    /** Classes of SQLSTATE: the server is busy, locked, stopped, or a standby. */
    static final Set<String> AWAY = Set.of("08", "25", "40", "53", "55", "57");

    // The time of the last answer and the ends that were told. Both outlive a connection.
    static String answered;
    static final Set<List<Object>> told = new HashSet<>();

    public static void main(String[] given) throws Exception {
        if (given.length < 1 || Arrays.stream(given).skip(1).anyMatch(one -> !one.matches("[0-9]{1,6}")))
            end("usage: JDBC_URL=… java -cp postgresql.jar Wait.java BATCH [DEADLINE_SECONDS [ASK_EVERY_SECONDS]]");
        int deadline = given.length > 1 ? Integer.parseInt(given[1]) : 3600;
        int every = given.length > 2 ? Integer.parseInt(given[2]) : 60;
        LogManager.getLogManager().reset(); // the driver logs URLs that it cannot read
        CompletableFuture.delayedExecutor(deadline, TimeUnit.SECONDS)
            .execute(() -> end("the batch has not ended at the deadline"));
        while (true) {
            try (Connection connection = connect()) {
                waitFor(given[0], connection, every);
                return;
            } catch (SQLException fault) {
                if (!AWAY.contains(String.valueOf(fault.getSQLState()).substring(0, 2)))
                    end("the database refuses: " + fault.getMessage());
                System.err.println("the database is away and asked again: " + fault.getMessage());
            }
            Thread.sleep(1000);
        }
    }

    static void waitFor(String batch, Connection connection, int every) throws Exception {
        prepare(connection, "LISTEN dispatch_done").execute();
        prepare(connection, INSERT, "default", batch).execute();
        while (isLive(batch, connection)) {
            connection.unwrap(PGConnection.class).getNotifications(Math.max(1, every * 1000)); // 0: without end
            Thread.sleep(1000); // the notification is also for ends that are seen a moment later
        }
    }

    /** Tells new ends. If no row is live any more, it asks from the beginning on, so that no end is missed. */
    static boolean isLive(String batch, Connection connection) throws SQLException {
        ResultSet state = prepare(connection, LIVE, "default", batch).executeQuery();
        state.next();
        String now = state.getString(1);
        boolean isLive = state.getBoolean(2);
        ResultSet ended = prepare(connection, ENDED, "default", batch, isLive ? answered : null).executeQuery();
        while (ended.next()) // a row that is retried ends again, at another time
            if (told.add(List.of(ended.getLong(1), ended.getString(3))))
                System.out.println(ended.getLong(1) + " " + ended.getString(2));
        answered = now;
        return isLive;
    }

    static PreparedStatement prepare(Connection connection, String sql, String... values) throws SQLException {
        PreparedStatement made = connection.prepareStatement(sql);
        made.closeOnCompletion();
        for (int place = 0; place < values.length; place++)
            made.setString(place + 1, values[place]);
        return made;
    }

    static Connection connect() throws SQLException {
        String url = System.getenv("JDBC_URL");
        if (url == null || org.postgresql.Driver.parseURL(url, null) == null)
            end("JDBC_URL is not jdbc:postgresql://HOST:PORT/DATABASE?user=USER&password=PASSWORD");
        Properties limits = new Properties();
        limits.putAll(Map.of("connectTimeout", "20", "socketTimeout", "20"));
        return new org.postgresql.Driver().connect(url, limits);
    }

    static void end(String words) {
        System.err.println(words);
        System.exit(1);
    }
}
