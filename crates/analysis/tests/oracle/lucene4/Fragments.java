// Records the parts of texts that Lucene 4.6.1's simple highlighter cuts out for queries, as Clouseau asks it. Run by record.py.
//
// Reads the lines of Recorder: documents, and `fragments TAB analyzer number size TAB query`. For each of the latter it writes the
// fragments of every document that has some, by its number.

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.highlight.*;

public class Fragments {
  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
    List<String> documents = new ArrayList<>();
    for (String line; (line = in.readLine()) != null; ) {
      String[] parts = line.split("\t", 3);
      String text = Recorder.unescape(parts[2]);
      if (parts[0].equals("document")) {
        documents.add(text);
        out.println("{\"title\":" + Recorder.json(parts[1]) + ",\"default\":" + Recorder.json(text) + "}");
        continue;
      }
      String[] asked = parts[1].split(" ");
      Analyzer analyzer = Version.analyzer(asked[0]);
      int number = Integer.parseInt(asked[1]), size = Integer.parseInt(asked[2]);
      Query query = Version.parsed(asked[0], text);
      Highlighter highlighter = new Highlighter(new SimpleHTMLFormatter("<em>", "</em>"), new QueryScorer(query));
      if (size > 0) highlighter.setTextFragmenter(new SimpleFragmenter(size));
      StringBuilder found = new StringBuilder();
      for (int i = 0; i < documents.size(); i++) {
        String[] fragments = highlighter.getBestFragments(analyzer, "default", documents.get(i), number);
        if (fragments.length == 0) continue;
        StringJoiner all = new StringJoiner(",", "[", "]");
        for (String fragment : fragments) all.add(Recorder.json(fragment));
        found.append(found.length() > 0 ? "," : "").append("\"" + i + "\":").append(all);
      }
      out.println("{\"analyzer\":\"" + asked[0] + "\",\"number\":" + number + ",\"size\":" + size + ",\"text\":" + Recorder.json(text) + ",\"fragments\":{" + found + "}}");
    }
    out.flush();
  }
}
