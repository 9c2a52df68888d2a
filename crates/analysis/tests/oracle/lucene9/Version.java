// Lucene 9.12.1 with the analyzers of Nouveau, and its query parser. The fields `n` and `m` hold numbers.

import java.text.NumberFormat;
import java.util.*;
import org.apache.lucene.analysis.*;
import org.apache.lucene.analysis.core.LetterTokenizer;
import org.apache.lucene.analysis.miscellaneous.ASCIIFoldingFilter;
import org.apache.lucene.document.*;
import org.apache.lucene.index.*;
import org.apache.lucene.queryparser.flexible.standard.StandardQueryParser;
import org.apache.lucene.queryparser.flexible.standard.config.PointsConfig;
import org.apache.lucene.search.*;
import org.apache.lucene.store.*;

class Version {
  static final Map<String, Analyzer> ANALYZERS = new HashMap<>();

  static Analyzer analyzer(String name) throws Exception {
    Analyzer known = ANALYZERS.get(name);
    if (known == null) ANALYZERS.put(name, known = make(name));
    return known;
  }

  static Analyzer make(String name) throws Exception {
    if (name.equals("simple_asciifolding"))
      return new Analyzer() {
        protected TokenStreamComponents createComponents(String field) {
          Tokenizer tokenizer = new LetterTokenizer();
          return new TokenStreamComponents(tokenizer, new ASCIIFoldingFilter(new LowerCaseFilter(tokenizer)));
        }

        protected TokenStream normalize(String field, TokenStream in) {
          return new ASCIIFoldingFilter(new LowerCaseFilter(in));
        }
      };
    return (Analyzer) Class.forName("org.apache.lucene.analysis." + Names.CLASSES.get(name)).getConstructor().newInstance();
  }

  static String normalize(String name, String text) throws Exception {
    return analyzer(name).normalize("f", text).utf8ToString();
  }

  /** The name is an analyzer's, or one with a language: `standard@de`. */
  static String query(String name, String text) throws Exception {
    return parsed(name, text).toString();
  }

  static Query parsed(String name, String text) throws Exception {
    String[] parts = name.split("@");
    PointsConfig numbers = new PointsConfig(NumberFormat.getInstance(Locale.forLanguageTag(parts.length > 1 ? parts[1] : "en-US")), Double.class);
    StandardQueryParser parser = new StandardQueryParser(analyzer(parts[0]));
    parser.setPointsConfigMap(Map.of("n", numbers, "m", numbers));
    return parser.parse(text, "default");
  }

  /** An index of one segment in memory; the documents are pairs of the fields `default` and `title`. */
  static IndexSearcher searcher(List<String[]> documents) throws Exception {
    Directory directory = new ByteBuffersDirectory();
    IndexWriter writer = new IndexWriter(directory, new IndexWriterConfig(analyzer("standard")));
    for (String[] texts : documents) {
      Document document = new Document();
      document.add(new TextField("default", texts[0], Field.Store.NO));
      document.add(new TextField("title", texts[1], Field.Store.NO));
      writer.addDocument(document);
    }
    writer.forceMerge(1);
    writer.close();
    return new IndexSearcher(DirectoryReader.open(directory));
  }

  static long total(TopDocs found) {
    return found.totalHits.value;
  }
}
