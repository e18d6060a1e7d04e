import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.avro.Schema;
import org.apache.avro.io.parsing.ResolvingGrammarGenerator;
import org.apache.avro.io.parsing.Symbol;

/**
 * Verdicts of Apache Avro's resolving decoder: reads lines of a reader's and a writer's definition, with a tab
 * between them, and answers each with a line: invalid, readable, unreadable or error, and whether the two are equal.
 */
public class ReadableDefinitions {
  public static void main(String[] arguments) throws Exception {
    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line; (line = input.readLine()) != null; ) {
      var definitions = line.split("\t");
      output.println(verdict(definitions[0], definitions[1]));
    }
    output.flush();
  }

  private static String verdict(String reader, String writer) {
    Schema read;
    Schema written;
    try {
      read = new Schema.Parser().setValidateDefaults(false).parse(reader);
      written = new Schema.Parser().setValidateDefaults(false).parse(writer);
    } catch (RuntimeException error) {
      return "invalid";
    }
    try {
      var equal = written.equals(read) ? "equal" : "different";
      var symbol = new ResolvingGrammarGenerator().generate(written, read);
      return (Symbol.hasErrors(symbol) ? "unreadable " : "readable ") + equal;
    } catch (Exception | StackOverflowError error) {
      return "error";
    }
  }
}
