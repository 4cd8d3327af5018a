// The server as programs in Java meet it, by pgjdbc: what differs from what is expected ends the program with an error.

import java.io.StringReader;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import org.postgresql.PGConnection;

public class Clients {
    static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("found " + found + ", expected " + expected);
        }
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) {
            found.add(rows.getString(name));
        }
        return found;
    }

    public static void main(String[] words) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + words[0] + "/weft";
        Properties options = new Properties();
        options.setProperty("user", "me");
        for (String mode : List.of("extended", "simple", "extendedForPrepared", "extendedCacheEverything")) {
            options.setProperty("preferQueryMode", mode);
            try (Connection connection = DriverManager.getConnection(url, options)) {
                values(connection);
                transactions(connection);
                batches(connection);
                metadata(connection);
                copies(connection);
                errors(connection);
            }
        }
        System.out.println("done");
    }

    static void values(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS jdbc_values");
            statement.execute("CREATE TABLE jdbc_values (id INTEGER PRIMARY KEY, s VARCHAR(20), d DECIMAL(10, 2), at TIMESTAMP, ok BOOLEAN, b BLOB, x DOUBLE)");
        }
        String insert = "INSERT INTO jdbc_values VALUES (?, ?, ?, ?, ?, ?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            statement.setInt(1, 1);
            statement.setString(2, "it's ä");
            statement.setBigDecimal(3, new BigDecimal("12.50"));
            statement.setTimestamp(4, Timestamp.valueOf("2020-01-02 03:04:05.5"));
            statement.setBoolean(5, true);
            statement.setBytes(6, new byte[] {0, -1});
            statement.setDouble(7, 0.1);
            equal(statement.executeUpdate(), 1);
        }
        // More often than the driver needs to have a statement prepared by the server.
        for (int times = 0; times < 10; times++) {
            try (PreparedStatement statement = connection.prepareStatement("SELECT * FROM jdbc_values WHERE id = ?")) {
                statement.setInt(1, 1);
                ResultSet rows = statement.executeQuery();
                equal(rows.next(), true);
                equal(rows.getString("s"), "it's ä");
                equal(rows.getBigDecimal("d"), new BigDecimal("12.50"));
                equal(rows.getTimestamp("at"), Timestamp.valueOf("2020-01-02 03:04:05.5"));
                equal(rows.getBoolean("ok"), true);
                equal(rows.getBytes("b").length, 2);
                equal(rows.getDouble("x"), 0.1);
                equal(rows.getMetaData().getColumnTypeName(2), "text");
                equal(rows.getMetaData().getPrecision(3), 10);
                equal(rows.next(), false);
            }
        }
    }

    static void transactions(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("UPDATE jdbc_values SET s = 'one'");
            Savepoint savepoint = connection.setSavepoint();
            statement.executeUpdate("UPDATE jdbc_values SET s = 'two'");
            connection.rollback(savepoint);
            connection.commit();
            statement.executeUpdate("UPDATE jdbc_values SET s = 'three'");
            connection.rollback();
            equal(column(statement.executeQuery("SELECT s FROM jdbc_values"), "s"), List.of("one"));
            // A part of the rows at a time.
            statement.setFetchSize(100);
            int count = 0;
            ResultSet rows = statement.executeQuery("SELECT value FROM generate_series(1, 1000) AS g(value)");
            while (rows.next()) {
                count++;
            }
            equal(count, 1000);
            connection.commit();
        }
        connection.setAutoCommit(true);
        equal(connection.getTransactionIsolation(), Connection.TRANSACTION_READ_COMMITTED);
    }

    static void batches(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO jdbc_values (id) VALUES (?)")) {
            for (int id = 10; id < 110; id++) {
                statement.setInt(1, id);
                statement.addBatch();
            }
            int total = 0;
            for (int count : statement.executeBatch()) {
                total += count;
            }
            equal(total, 100);
        }
        String insert = "INSERT INTO jdbc_values (id, s) VALUES (1000, 'key')";
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate(insert, new String[] {"id"});
            equal(column(statement.getGeneratedKeys(), "id"), List.of("1000"));
        }
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        equal(about.getDatabaseProductName(), "PostgreSQL");
        String[] types = {"TABLE"};
        equal(column(about.getTables(null, "main", "jdbc\\_values", types), "TABLE_NAME"), List.of("jdbc_values"));
        equal(column(about.getColumns(null, "main", "jdbc_values", "%"), "COLUMN_NAME").size(), 7);
        equal(column(about.getPrimaryKeys(null, "main", "jdbc_values"), "COLUMN_NAME"), List.of("id"));
        equal(column(about.getIndexInfo(null, "main", "jdbc_values", true, false), "COLUMN_NAME"), List.of("id"));
        equal(column(about.getImportedKeys(null, "main", "jdbc_values"), "FKCOLUMN_NAME"), List.of());
        equal(column(about.getExportedKeys(null, "main", "jdbc_values"), "FKCOLUMN_NAME"), List.of());
        equal(column(about.getSchemas(), "TABLE_SCHEM").contains("main"), true);
        about.getCatalogs().close();
        about.getTypeInfo().close();
        about.getProcedures(null, null, "%").close();
        about.getFunctions(null, null, "a%").close();
        about.getTableTypes().close();
        about.getBestRowIdentifier(null, "main", "jdbc_values", 0, true).close();
        about.getTablePrivileges(null, "main", "jdbc_values").close();
    }

    static void copies(Connection connection) throws Exception {
        PGConnection wire = connection.unwrap(PGConnection.class);
        long rows = wire.getCopyAPI().copyIn("COPY jdbc_values (id, s) FROM STDIN", new StringReader("2000\ta\n2001\t\\N\n"));
        equal(rows, 2L);
    }

    static void errors(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String[] wrong : new String[][] {{"SELEC 1", "42601"}, {"INSERT INTO jdbc_values (id) VALUES (1)", "23505"}}) {
                try {
                    statement.execute(wrong[0]);
                    throw new AssertionError(wrong[0] + " has no error");
                } catch (SQLException error) {
                    equal(error.getSQLState(), wrong[1]);
                }
            }
            statement.setQueryTimeout(1);
            try {
                statement.execute("SELECT count(*) FROM generate_series(1, 100000000000) AS v(i) WHERE i % 7 = 3");
                throw new AssertionError("the query ends");
            } catch (SQLException error) {
                equal(error.getSQLState(), "57014");
            }
            equal(column(statement.executeQuery("SELECT 1 AS one"), "one"), List.of("1"));
        }
    }
}
