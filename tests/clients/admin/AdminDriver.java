package org.apache.pulsar.admin.cli;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import picocli.CommandLine;

/**
 * Java's pulsar-admin in one JVM. A line is a command, its words separated by tabs; its answer is a line, too: "ok" or
 * "failed", a tab, and what the command printed. The command "tree" answers with all commands and their parameters.
 */
public final class AdminDriver {
    public static void main(String[] arguments) throws Exception {
        var properties = new Properties();
        properties.setProperty("webServiceUrl", arguments[0]);
        properties.setProperty("brokerServiceUrl", arguments[1]);
        var tool = new PulsarAdminTool(properties);
        var answers = System.out;
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            var printed = new ByteArrayOutputStream();
            var to = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(to);
            System.setErr(to);
            boolean done;
            try {
                if (line.equals("tree")) {
                    leaves("", tool.commander, to);
                    done = true;
                } else {
                    done = tool.run(line.split("\t"));
                }
            } catch (Throwable problem) {
                to.println(problem);
                done = false;
            }
            var text = printed.toString(StandardCharsets.UTF_8).replace("\\", "\\\\").replace("\n", "\\n");
            answers.println((done ? "ok" : "failed") + "\t" + text.replace("\r", ""));
            answers.flush();
        }
        System.exit(0);
    }

    private static void leaves(String path, CommandLine command, PrintStream to) {
        if (command.getSubcommands().isEmpty()) {
            var spec = command.getCommandSpec();
            var options = spec.options().stream()
                    .map(one -> (one.required() ? "!" : "") + String.join("/", one.names()))
                    .toList();
            var positions = spec.positionalParameters().stream()
                    .map(one -> (one.required() ? "!" : "") + one.paramLabel())
                    .toList();
            to.println(path.strip() + "\t" + String.join(" ", positions) + "\t" + String.join(" ", options));
        }
        new java.util.LinkedHashSet<>(command.getSubcommands().values()).forEach(
                one -> leaves(path + " " + one.getCommandName(), one, to));
    }
}
